// A chart of lines over steps as SVG, for eyes and, in words, for screen readers.

const WIDTH = 460, HEIGHT = 220, LEFT = 58, RIGHT = 8, TOP = 8, BOTTOM = 24;
const MOST = 500;  // points of a line; of more, means of neighbours
export const COLORS = ["#2f6fde", "#d9711c", "#2e9e5b", "#b04fc4", "#c23b4a", "#7c7f2b"];

function svg(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Round numbers from low to high, some four of them.
function ticks(low, high) {
  const rough = (high - low) / 4 || Math.abs(high) || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find(times => times * size >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found;
}

function thinned(points) {
  const each = Math.ceil(points.length / MOST);
  if (each === 1) return points;
  const means = [];
  for (let first = 0; first < points.length; first += each) {
    const some = points.slice(first, first + each);
    means.push([0, 1].map(place => some.reduce((sum, point) => sum + point[place], 0) / some.length));
  }
  return means;
}

// lines: [{name, color, points: [[step, value]], dots: whether each point is shown}], write: value -> text
export function chart(title, lines, write) {
  const drawn = lines.filter(line => line.points.length);
  if (!drawn.length) return null;
  const all = drawn.flatMap(line => thinned(line.points));
  const ends = place => all.reduce(([low, high], point) => [Math.min(low, point[place]), Math.max(high, point[place])], [Infinity, -Infinity]);
  const [[first, last], [low, high]] = [ends(0), ends(1)];
  const spread = high - low || Math.abs(high) * 0.1 || 1;
  const x = step => LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first || 1);
  const y = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low + spread * 0.05) / (spread * 1.1);
  const ended = drawn.map(line => `${line.name}: ${write(line.points.at(-1)[1])}`).join("; ");
  const picture = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${ended}`});
  for (const value of ticks(low, high)) {
    picture.append(svg("line", {class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value)}));
    picture.append(svg("text", {x: LEFT - 6, y: y(value) + 4, "text-anchor": "end"}, write(value)));
  }
  for (const step of ticks(first, last).filter(Number.isInteger))
    picture.append(svg("text", {x: x(step), y: HEIGHT - 6, "text-anchor": "middle"}, step.toLocaleString("en")));
  for (const line of drawn) {
    const points = thinned(line.points);
    if (!line.dots || points.length > 1)
      picture.append(svg("polyline", {points: points.map(([step, value]) => `${x(step)},${y(value)}`).join(" "), stroke: line.color, "stroke-dasharray": line.dots ? "4 3" : ""}));
    if (line.dots || points.length === 1)
      for (const [step, value] of points) picture.append(svg("circle", {cx: x(step), cy: y(value), r: 3.5, fill: line.color}));
  }
  return picture;
}
