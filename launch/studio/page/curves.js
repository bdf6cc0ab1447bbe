// A chart of lines over steps as SVG, for eyes, hands and, in words, for screen readers. The steps that are shown and the
// step that is read are those of all charts.

const WIDTH = 460, HEIGHT = 240, LEFT = 62, RIGHT = 10, TOP = 8, BOTTOM = 42;
const MOST = 500;  // points of a line; of more, means of neighbours
export const COLORS = ["#2f6fde", "#d9711c", "#2e9e5b", "#b04fc4", "#c23b4a", "#7c7f2b"];

function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Round numbers from low to high, at least two; on a logarithmic axis 1, 2 and 5 times powers of ten.
function ticks(low, high, logarithmic) {
  if (logarithmic) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const times of [1, 2, 5]) found.push(times * 10 ** power);
    const within = found.filter(value => value >= low && value <= high);
    if (within.length >= 2) return within;
  }
  const rough = (high - low) / 4 || Math.abs(high) || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find(times => times * size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found;
}

function thinned(points) {
  const each = Math.ceil(points.length / MOST);
  if (each <= 1) return points;
  const means = [];
  for (let first = 0; first < points.length; first += each) {
    const some = points.slice(first, first + each);
    means.push([0, 1].map(place => some.reduce((sum, point) => sum + point[place], 0) / some.length));
  }
  return means;
}

// An exponential mean that begins without a bias.
function smoothed(points, share) {
  let mean = 0, weight = 0;
  return points.map(([step, value]) => {
    mean = share * mean + (1 - share) * value;
    weight = share * weight + 1 - share;
    return [step, mean / weight];
  });
}

const ends = values => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
const nearest = (points, step) => points.reduce((best, point) => Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best, points[0]);

// lines: [{name, kind: "" or what else it is of the run, color, points: [[step, value]], dots: whether each point is shown}], write: value -> text
// view: {smooth, log, zoom: [first, last] or null, onzoom(range), onread(step or null)}, words: {x, y}
export function chart(title, lines, write, view, words) {
  const inside = ([step, value]) => (!view.zoom || step >= view.zoom[0] && step <= view.zoom[1]) && (!view.log || value > 0);
  const drawn = lines.map(line => ({...line, points: line.points.filter(inside)})).filter(line => line.points.length);
  if (!drawn.length) return null;
  for (const line of drawn) line.shown = thinned(view.smooth && !line.dots ? smoothed(line.points, view.smooth) : line.points);
  const all = drawn.flatMap(line => [...line.shown, ...thinned(line.points)]);
  const [first, last] = ends(all.map(point => point[0]));
  const scale = view.log ? Math.log10 : value => value;
  let [low, high] = ends(all.map(point => scale(point[1])));
  const spread = high - low || Math.abs(high) * 0.1 || 1;
  if (low === high) [low, high] = [low - spread / 2, high + spread / 2];  // a level line in the middle
  const x = step => LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first || 1);
  const y = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (scale(value) - low + spread * 0.05) / (spread * 1.1);
  const raw = value => view.log ? 10 ** value : value;
  const ended = drawn.map(({name, kind, points}) => `${[name, kind].filter(Boolean).join(", ")}: ${write(points.at(-1)[1])}`).join("; ");
  const picture = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${ended}`});
  for (const value of ticks(raw(low), raw(high), view.log)) {
    picture.append(svg("line", {class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value)}));
    picture.append(svg("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, write(value)));
  }
  for (const step of ticks(first, last).filter(Number.isInteger))
    picture.append(svg("text", {x: x(step), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle"}, step.toLocaleString("en")));
  picture.append(svg("text", {x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, words.x));
  picture.append(svg("text", {x: 0, y: 0, "text-anchor": "middle", transform: `translate(11 ${(HEIGHT - BOTTOM) / 2}) rotate(-90)`}, words.y));
  const path = points => points.map(([step, value]) => `${x(step)},${y(value)}`).join(" ");
  for (const line of drawn) {
    if (view.smooth && !line.dots) picture.append(svg("polyline", {class: "raw", points: path(thinned(line.points)), stroke: line.color}));
    if (line.shown.length > 1) picture.append(svg("polyline", {points: path(line.shown), stroke: line.color, "stroke-dasharray": line.dots ? "4 3" : ""}));
    if (line.dots || line.shown.length === 1)
      for (const [step, value] of line.shown) picture.append(svg("circle", {cx: x(step), cy: y(value), r: 3.5, fill: line.color}));
  }
  const cursor = svg("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
  const range = svg("rect", {class: "zoom", y: TOP, height: HEIGHT - TOP - BOTTOM, width: 0});
  picture.append(cursor, range);
  const stepAt = event => {
    const {left, width} = picture.getBoundingClientRect();
    const place = ((event.clientX - left) / width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    return first + Math.min(1, Math.max(0, place)) * (last - first);
  };
  let begun = null;
  picture.addEventListener("pointerdown", event => {
    if (event.pointerType === "touch") return view.onread(stepAt(event));  // a finger reads, and what it has read stays
    begun = stepAt(event);
  });
  picture.addEventListener("pointermove", event => {
    const step = stepAt(event);
    view.onread(step);
    if (begun === null) return;
    range.setAttribute("x", Math.min(x(begun), x(step)));
    range.setAttribute("width", Math.abs(x(step) - x(begun)));
  });
  picture.addEventListener("pointerup", event => {
    if (begun === null) return;
    const [from, to] = [begun, stepAt(event)].sort((one, other) => one - other);
    begun = null;
    range.setAttribute("width", 0);
    if (to - from > (last - first) / 50) view.onzoom([Math.floor(from), Math.ceil(to)]);
  });
  picture.addEventListener("pointerleave", event => {
    if (event.pointerType === "touch") return;
    begun = null;
    range.setAttribute("width", 0);
    view.onread(null);
  });
  picture.addEventListener("dblclick", () => view.onzoom(null));
  // The values at a step, each beside the color of its run; the line shows the place; null: nothing is read.
  picture.read = step => {
    cursor.setAttribute("visibility", step === null ? "hidden" : "visible");
    if (step === null) return [];
    const found = drawn.map(line => [line, ...nearest(line.shown, step)]);
    const at = found.reduce((best, [, place]) => Math.abs(place - step) < Math.abs(best - step) ? place : best, found[0][1]);
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    return [`${words.x} ${Math.round(at).toLocaleString("en")}: `, ...found.flatMap(([{name, kind, color}, place, value]) => {
      const key = Object.assign(document.createElement("span"), {className: "key", title: name});
      key.style.background = color;
      return [key, `${kind ? `${kind} ` : ""}${write(value)}${place === at ? "" : ` (${Math.round(place)})`}  `];
    })];
  };
  return picture;
}
