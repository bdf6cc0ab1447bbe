// A chart of lines over steps as SVG, for eyes, hands, keys and, in words, for screen readers. The steps that are shown
// and the step that is read are those of all charts.

const HEIGHT = 240, LEFT = 62, RIGHT = 22, TOP = 8, BOTTOM = 42;
const MOST = 500;  // points of a line; of more, means of neighbours
const COLORS = ["#2f6fde", "#d9711c", "#2e9e5b", "#b04fc4", "#c23b4a", "#7c7f2b"];
export const colorOf = place => COLORS[place] || `oklch(0.62 0.15 ${place * 137.5 % 360})`;

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
  const rough = (high - low) / 6 || Math.abs(high) || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 2.5, 5, 10].find(times => times * size >= rough);
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
// view: {smooth, log, zoom: [first, last] or null}, width: in pixels, words: {x, y}
export function chart(title, lines, write, view, width, words) {
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
  const x = step => LEFT + (width - LEFT - RIGHT) * (step - first) / (last - first || 1);
  const y = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (scale(value) - low + spread * 0.05) / (spread * 1.1);
  const raw = value => view.log ? 10 ** value : value;
  const ended = drawn.map(({name, kind, points}) => `${[name, kind].filter(Boolean).join(", ")}: ${write(points.at(-1)[1])}`).join("; ");
  const picture = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, tabindex: 0, role: "slider", "aria-label": title, "aria-valuemin": first, "aria-valuemax": last});
  const named = new Map(ticks(raw(low), raw(high), view.log).map(value => [write(value), value]));  // none twice
  for (const [text, value] of named) {
    picture.append(svg("line", {class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}));
    picture.append(svg("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, text));
  }
  for (const step of ticks(first, last).filter(Number.isInteger))
    picture.append(svg("text", {x: x(step), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle"}, step.toLocaleString("en")));
  picture.append(svg("text", {x: (LEFT + width) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, words.x));
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
  picture.steps = [first, last];
  picture.points = [...new Set(drawn.flatMap(line => line.shown.map(([step]) => step)))].sort((one, other) => one - other);
  picture.plot = () => {  // where it lies in the window
    const box = picture.getBoundingClientRect(), scale = box.width / width;
    return {left: box.left + LEFT * scale, width: (width - LEFT - RIGHT) * scale};
  };
  picture.mark = (from, to) => {
    range.setAttribute("x", x(Math.min(from, to)));
    range.setAttribute("width", x(Math.max(from, to)) - x(Math.min(from, to)));
  };
  // The values at a step, each beside the color of its run; the line shows the place; null: nothing is read.
  picture.read = step => {
    cursor.setAttribute("visibility", step === null ? "hidden" : "visible");
    picture.setAttribute("aria-valuenow", step ?? last);
    picture.setAttribute("aria-valuetext", ended);
    if (step === null) return [];
    const found = drawn.map(line => [line, ...nearest(line.shown, step)]);
    const at = found.reduce((best, [, place]) => Math.abs(place - step) < Math.abs(best - step) ? place : best, found[0][1]);
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    const told = found.map(([{name, kind, color, dots}, place, value]) => [name, color, dots, `${kind ? `${kind} ` : ""}${write(value)}${place === at ? "" : ` (${Math.round(place)})`}`]);
    const place = `${words.x} ${Math.round(at).toLocaleString("en")}: `;
    picture.setAttribute("aria-valuetext", place + told.map(([name, , , text]) => `${name} ${text}`).join("; "));
    return [place, ...told.flatMap(([name, color, dots, text]) => {
      const key = Object.assign(document.createElement("span"), {className: dots ? "key dots" : "key", title: name});
      key.style.background = color;
      return [key, `${text}  `];
    })];
  };
  picture.read(null);
  return picture;
}

// Let a mouse, fingers and keys read and zoom the charts in an element, which stays while they are drawn anew.
// read(step or null), zoomTo([first, last] or null), reading(): the step that is read
export function listen(place, {read, zoomTo, reading}) {
  const pressed = new Map();  // pointer -> its share of the plot's width
  let begun = null;  // {picture, plot, steps, shares} of a gesture
  const shareOf = (event, {left, width}) => Math.min(1, Math.max(0, (event.clientX - left) / width));
  const stepAt = (share, [first, last]) => first + share * (last - first);
  place.addEventListener("pointerdown", event => {
    const picture = event.target.closest("svg");
    if (!picture || event.button) return;
    place.setPointerCapture(event.pointerId);
    begun ||= {picture, plot: picture.plot(), steps: picture.steps};
    pressed.set(event.pointerId, shareOf(event, begun.plot));
    begun.shares = [...pressed.values()];
    if (pressed.size === 1) read(stepAt(begun.shares[0], begun.steps));
  });
  place.addEventListener("pointermove", event => {
    if (!pressed.has(event.pointerId)) {
      const picture = event.target.closest("svg");
      if (picture) read(stepAt(shareOf(event, picture.plot()), picture.steps));
      return;
    }
    if (!begun) return;  // a finger that is left over
    pressed.set(event.pointerId, shareOf(event, begun.plot));
    const [from, to] = begun.shares.map(share => stepAt(share, begun.steps)), [one, other] = pressed.values();
    if (pressed.size === 2) {  // the steps under the fingers stay under them
      const span = (to - from) / (other - one), first = from - one * span;
      if (span > 0 && Number.isFinite(span)) zoomTo([first, first + span]);
      return;
    }
    read(stepAt(one, begun.steps));
    if (event.pointerType !== "touch") begun.picture.mark(from, stepAt(one, begun.steps));
  });
  for (const end of ["pointerup", "pointercancel"]) place.addEventListener(end, event => {
    const to = pressed.get(event.pointerId), gesture = begun;
    if (to === undefined) return;
    pressed.delete(event.pointerId);
    begun = null;
    if (!gesture || event.pointerType === "touch") return;  // a finger reads, and what it has read stays
    gesture.picture.mark(0, 0);
    const range = [gesture.shares[0], to].sort((one, other) => one - other);
    if (end === "pointerup" && range[1] - range[0] > 0.02) zoomTo(range.map(share => stepAt(share, gesture.steps)));
  });
  place.addEventListener("pointerleave", event => {
    if (event.pointerType !== "touch" && !place.contains(document.activeElement)) read(null);
  });
  place.addEventListener("dblclick", () => zoomTo(null));
  place.addEventListener("keydown", event => {
    const picture = event.target.closest("svg");
    if (!picture || event.ctrlKey || event.metaKey || event.altKey) return;
    const {points, steps: [first, last]} = picture, now = reading() ?? last, here = points.indexOf(nearest(points.map(step => [step]), now)[0]);
    const to = {ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - 10, PageDown: here + 10, Home: 0, End: points.length - 1}[event.key];
    const times = {"+": 0.5, "=": 0.5, "-": 2}[event.key];
    if (to !== undefined) read(points[Math.min(points.length - 1, Math.max(0, to))]);
    else if (times) zoomTo([now - (now - first) * times, now + (last - now) * times]);
    else if (event.key === "Escape" || event.key === "0") zoomTo(null);
    else return;
    event.preventDefault();
  });
}
