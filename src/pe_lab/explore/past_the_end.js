// Chapter 08: the row that is read for each position, past the end of a table.
import { choice, explorable, number, pointing, slider, svg } from "./_common.js";

const WAYS = [
  ["error", "none: refuse it"],
  ["untrained", "rows never trained"],
  ["clamp", "clamp to the last row"],
  ["wrap", "wrap around to row 0"],
  ["resample", "resample all rows"],
];
const [LEFT, TOP, HEIGHT, RIGHT] = [40, 48, 220, 12];
const REFUSED = TOP - 20; // height of the crosses

/** The place in the table at which a position is read; null if it has none. */
export function place(way, rows, length, position) {
  if (way === "clamp") return Math.min(position, rows - 1);
  if (way === "wrap") return position % rows;
  if (way === "resample") return (position * (rows - 1)) / (length - 1);
  return way === "error" && position >= rows ? null : position;
}

/** [row, share] pairs that make up what is read. */
export function reads(way, rows, length, position) {
  const at = place(way, rows, length, position);
  if (at === null) return [];
  const low = Math.floor(at);
  const pairs = [[low, 1 - (at - low)], [low + 1, at - low]];
  return pairs.filter(([, share]) => share > 0);
}

/** All positions that are read at the same place. */
export function sharing(way, rows, length, position) {
  const here = place(way, rows, length, position);
  const all = Array.from({ length }, (_, p) => p);
  return all.filter((p) => place(way, rows, length, p) === here);
}

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    choice(frame, "way", { label: "past the end", options: WAYS });
    slider(frame, "rows", { label: "trained rows N" });
    slider(frame, "length", { label: "positions asked for L" });
    const last = () => frame.get("length") - 1;
    slider(frame, "position", { label: "position p", high: last });
    let plot;
    pointing(frame.figure, (x) => {
      const p = Math.floor((x - LEFT) / plot.step);
      if (p >= 0 && p <= last()) frame.set("position", p);
    });
    return (width) => {
      const now = read(frame);
      plot = measure(width, now);
      frame.figure.replaceChildren(draw(plot, now));
      return readout(now);
    };
  });
}

/** The settings, with the chosen position kept among those asked for. */
function read(frame) {
  const [way, rows, length] = ["way", "rows", "length"].map(frame.get);
  return { way, rows, length, position: Math.min(frame.get("position"), length - 1) };
}

function measure(width, { way, rows, length }) {
  const most = way === "untrained" ? Math.max(rows, length) - 1 : rows - 1;
  const step = (width - LEFT - RIGHT) / length;
  return {
    width,
    step,
    most,
    x: (p) => LEFT + (p + 0.5) * step,
    y: (row) => TOP + HEIGHT * (1 - row / most),
  };
}

function draw(plot, now) {
  const height = TOP + HEIGHT + 44;
  const node = svg("svg", { width: plot.width, height, "aria-hidden": "true" });
  drawAxes(node, plot, now);
  drawChosen(node, plot, now);
  for (let p = 0; p < now.length; p++) drawDot(node, plot, now, p);
  return node;
}

function drawAxes(node, { width, step, most, x, y }, { rows, length, position }) {
  const every = (count, room) =>
    [1, 2, 4, 8, 16, 32].find((n) => (room / count) * n >= 22) ?? 64;
  for (let row = 0; row <= most; row += every(most, HEIGHT)) {
    const line = { x1: LEFT, x2: width - RIGHT, y1: y(row), y2: y(row) };
    node.append(svg("line", { class: "pe-grid", ...line }));
    const at = { x: LEFT - 7, y: y(row) + 4, "text-anchor": "end" };
    node.append(svg("text", at, row));
  }
  const across = every(length, width - LEFT - RIGHT);
  for (let p = 0; p < length; p++) {
    const near = Math.abs(p - position) * step < 20;
    if (p !== position && (p % across || near)) continue;
    const kind = p === position ? "pe-accent pe-strong" : "";
    const at = { x: x(p), y: TOP + HEIGHT + 22, "text-anchor": "middle" };
    node.append(svg("text", { class: kind, ...at }, p));
  }
  const below = { x: (LEFT + width - RIGHT) / 2, y: TOP + HEIGHT + 40 };
  node.append(svg("text", { "text-anchor": "middle", ...below }, "position"));
  node.append(svg("text", { x: 0, y: 12 }, "row"));
  drawEnd(node, LEFT + rows * step, width, rows < length);
}

/** Where the trained length ends. */
function drawEnd(node, x, width, shown) {
  if (!shown) return;
  const line = { x1: x, x2: x, y1: TOP - 30, y2: TOP + HEIGHT + 8 };
  node.append(svg("line", { class: "pe-axis", "stroke-dasharray": "5 4", ...line }));
  const side = x > width / 2 ? { x: x - 6, "text-anchor": "end" } : { x: x + 6 };
  node.append(svg("text", { class: "pe-ink", y: 12, ...side }, "trained up to here"));
}

function drawDot(node, { x, y, step }, { way, rows, length }, p) {
  const at = place(way, rows, length, p);
  const r = Math.max(2.5, Math.min(5, step / 3));
  if (at === null) {
    const [cx, cy] = [x(p), REFUSED];
    const d = `M${cx - r},${cy - r}l${2 * r},${2 * r}m0,${-2 * r}l${-2 * r},${2 * r}`;
    node.append(svg("path", { class: "pe-stroke pe-accent", d }));
    return;
  }
  const kind = way === "untrained" && p >= rows ? "pe-content" : "pe-position";
  node.append(svg("circle", { class: kind, cx: x(p), cy: y(at), r }));
}

/** The chosen position, and the row that it is read at. */
function drawChosen(node, { x, y }, { way, rows, length, position }) {
  const at = place(way, rows, length, position);
  const top = at === null ? REFUSED : y(at);
  const up = { x1: x(position), x2: x(position), y1: TOP + HEIGHT + 8, y2: top };
  node.append(svg("line", { class: "pe-accent", "stroke-dasharray": "2 3", ...up }));
  if (at === null) return;
  const left = { x1: LEFT, x2: x(position), y1: top, y2: top };
  node.append(svg("line", { class: "pe-accent", "stroke-dasharray": "2 3", ...left }));
  node.append(svg("circle", { class: "pe-ring", cx: x(position), cy: top, r: 8 }));
}

/** What is read for the chosen position, and what that costs all of them. */
export function readout({ way, rows, length, position }) {
  const beyond = Math.max(0, length - rows);
  const parts = reads(way, rows, length, position);
  const row = parts[0]?.[0];
  if (way === "error" && row === undefined) {
    return [
      `Position ${position} has no row in a table of ${rows} rows ` +
        `(positions 0 … ${rows - 1}): IndexError.`,
      `${beyond} of ${length} positions are refused.`,
    ];
  }
  if (way === "resample") return resampled({ rows, length, position, parts });
  const lost = way === "untrained" && row >= rows ? ", which no gradient ever reached" : "";
  const costs = {
    error: `${beyond} of ${length} positions are refused.`,
    untrained: `${beyond} of ${length} positions read rows as they were drawn.`,
  };
  const others = sharing(way, rows, length, position);
  const shared = others.length > 1 ? `Positions ${listed(others)} read it.` : "No other does.";
  return [`Position ${position} reads row ${row}${lost}.`, costs[way] ?? shared];
}

function resampled({ rows, length, position, parts }) {
  const said = parts.map(([row, share]) => `${number(share, 3)} of row ${row}`);
  const apart = number((rows - 1) / (length - 1), 3);
  return [
    `Position ${position} is read at place ${position} · ${rows - 1}/${length - 1}: ` +
      `${said.join(" and ")}.`,
    `Neighbours are ${apart} rows apart; in training it was 1.`,
  ];
}

/** "3, 11 and 19", or "7 … 19" for a run of numbers. */
export function listed(values) {
  const [first, last] = [values[0], values.at(-1)];
  if (values.length > 2 && last - first === values.length - 1) return `${first} … ${last}`;
  return `${values.slice(0, -1).join(", ")} and ${last}`;
}

export default { render };
