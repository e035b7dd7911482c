// Chapter 03: the sinusoidal table as a heat map; a chosen cell shows its formula.
import { invFreq, sinusoidal } from "./_maths.js";
import { choice, decades, explorable, html, number, octaves } from "./_common.js";
import { pointing, sharpCanvas, significant, slider, svg } from "./_common.js";
import { colourMap, css, heat, readableOn } from "./_common.js";

/** Which pair a channel belongs to, and whether it is the cosine of it. */
export function readChannel(channel, dModel, order) {
  const pairs = Math.ceil(dModel / 2);
  if (order === "halves") {
    return { pair: channel % pairs, cosine: channel >= pairs };
  }
  return { pair: Math.floor(channel / 2), cosine: channel % 2 === 1 };
}

/** How one cell comes about: its frequency, wavelength and value. */
export function explain(position, channel, { dModel, base, order }) {
  const { pair, cosine } = readChannel(channel, dModel, order);
  const omega = invFreq(dModel, base)[pair];
  const value = (cosine ? Math.cos : Math.sin)(position * omega);
  return { pair, cosine, omega, wavelength: (2 * Math.PI) / omega, value };
}

const TOP = 40;
const LEFT = 46;

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    const parts = addParts(frame);
    let plot = null;
    listen(frame, parts.pad, () => plot);
    return (width) => {
      const table = read(frame);
      plot = measure(width, table);
      drawHeat(frame, parts.canvas, plot, table);
      parts.overlay.replaceWith((parts.overlay = drawOverlay(plot, table)));
      return readout(table);
    };
  });
}

function addControls(frame) {
  slider(frame, "d_model", { label: "width d_model" });
  slider(frame, "base", { label: "base", stops: decades(10, 1e6) });
  slider(frame, "num_positions", { label: "positions", stops: octaves(4, 128) });
  choice(frame, "order", {
    label: "order of the channels",
    options: [
      ["interleaved", "interleaved (sin, cos …)"],
      ["halves", "halves (sines, cosines)"],
    ],
  });
}

function addParts(frame) {
  const canvas = html("canvas", { "aria-hidden": "true" });
  const overlay = svg("svg");
  const pad = html("div", {
    class: "pe-pad",
    tabindex: "0",
    role: "application",
    "aria-label": "Table of positions and channels. Arrow keys choose a cell.",
  });
  pad.append(canvas, overlay);
  frame.figure.append(pad);
  return { canvas, overlay, pad };
}

/** The settings, with the chosen cell kept inside the table. */
function read(frame) {
  const names = ["d_model", "base", "num_positions", "order", "position", "channel"];
  const [dModel, base, rows, order, position, channel] = names.map(frame.get);
  return {
    dModel,
    base,
    rows,
    order,
    position: Math.min(position, rows - 1),
    channel: Math.min(channel, dModel - 1),
  };
}

function measure(width, { dModel, rows }) {
  const strip = width < 480 ? 64 : 120; // for the wave
  const cellWidth = Math.min(64, (width - LEFT - strip - 16) / dModel);
  const cellHeight = Math.min(24, 330 / rows);
  const right = LEFT + cellWidth * dModel;
  const bottom = TOP + cellHeight * rows;
  return { strip, cellWidth, cellHeight, right, bottom, width, height: bottom + 6 };
}

function listen(frame, pad, plot) {
  const choose = (position, channel) => {
    const { rows, dModel } = read(frame);
    frame.set("position", Math.min(rows - 1, Math.max(0, position)));
    frame.set("channel", Math.min(dModel - 1, Math.max(0, channel)));
  };
  const point = (x, y) => {
    const { cellWidth, cellHeight, right } = plot();
    if (x < LEFT || x > right) return;
    choose(Math.floor((y - TOP) / cellHeight), Math.floor((x - LEFT) / cellWidth));
  };
  pointing(pad, point, true);
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  Object.assign(steps, { ArrowLeft: [0, -1], ArrowRight: [0, 1] });
  pad.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault(); // the page stays where it is
    const { position, channel } = read(frame);
    choose(position + step[0], channel + step[1]);
  });
}

function drawHeat(frame, canvas, plot, { dModel, base, rows, order }) {
  const { cellWidth, cellHeight, width, height } = plot;
  const context = sharpCanvas(canvas, width, height);
  const map = colourMap(frame.root);
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const digits = cellHeight < 16 || cellWidth < 32 ? null : cellWidth < 44 ? 1 : 3;
  for (let position = 0; position < rows; position++) {
    const row = sinusoidal(position, dModel, base, order);
    for (const [channel, value] of row.entries()) {
      const [x, y] = [LEFT + channel * cellWidth, TOP + position * cellHeight];
      const colour = heat(map, value);
      context.fillStyle = css(colour);
      context.fillRect(x, y, cellWidth + 0.5, cellHeight + 0.5);
      if (digits === null) continue;
      context.fillStyle = readableOn(colour);
      const text = number(value, digits);
      context.fillText(text, x + cellWidth / 2, y + cellHeight / 2 + 0.5);
    }
  }
}

function drawOverlay(plot, table) {
  const { width, height } = plot;
  const node = svg("svg", { width, height, class: "pe-over", "aria-hidden": "true" });
  drawLabels(node, plot, table);
  drawChosen(node, plot, table);
  drawWave(node, plot, table);
  return node;
}

function drawLabels(node, { cellWidth, cellHeight, right }, { dModel, rows, ...at }) {
  const label = (text, attributes, chosen) => {
    const kind = chosen ? "pe-accent pe-strong" : "";
    node.append(svg("text", { class: kind, ...attributes }, text));
  };
  label("channel", { x: (LEFT + right) / 2, y: 12, "text-anchor": "middle" });
  label("p", { x: LEFT - 8, y: TOP - 16, "text-anchor": "end" });
  const every = (size, room) => [1, 2, 4, 8, 16, 32].find((step) => step * size >= room);
  const [across, down] = [every(cellWidth, 20), every(cellHeight, 15)];
  for (let j = 0; j < dModel; j++) {
    const near = Math.abs(j - at.channel) * cellWidth < 20;
    if (j !== at.channel && (j % across || near)) continue;
    const x = LEFT + (j + 0.5) * cellWidth;
    label(j, { x, y: TOP - 7, "text-anchor": "middle" }, j === at.channel);
  }
  for (let p = 0; p < rows; p++) {
    const near = Math.abs(p - at.position) * cellHeight < 14;
    if (p !== at.position && (p % down || near)) continue;
    const y = TOP + (p + 0.5) * cellHeight + 4;
    label(p, { x: LEFT - 8, y, "text-anchor": "end" }, p === at.position);
  }
}

function drawChosen(node, { cellWidth, cellHeight }, { position, channel }) {
  const place = {
    x: LEFT + channel * cellWidth - 1,
    y: TOP + position * cellHeight - 1,
    width: cellWidth + 2,
    height: cellHeight + 2,
  };
  node.append(svg("rect", { class: "pe-ring-under", ...place }));
  node.append(svg("rect", { class: "pe-ring", ...place }));
}

/** The chosen channel as a wave down the positions, row by row beside the table. */
function drawWave(node, { strip, cellHeight, right, bottom }, table) {
  const { rows, position, channel } = table;
  const middle = right + 16 + strip / 2;
  const x = (p) => middle + explain(p, channel, table).value * (strip / 2 - 8);
  const y = (p) => TOP + (p + 0.5) * cellHeight;
  const line = { x1: middle, x2: middle, y1: TOP, y2: bottom };
  node.append(svg("line", { class: "pe-grid", ...line }));
  const steps = Array.from({ length: (rows - 1) * 8 + 1 }, (_, i) => i / 8);
  const points = steps.map((p) => `${x(p).toFixed(1)},${y(p).toFixed(1)}`);
  const d = `M${points.join("L")}`;
  node.append(svg("path", { class: "pe-stroke pe-position", d }));
  const across = { x1: right, x2: x(position), y1: y(position), y2: y(position) };
  node.append(svg("line", { class: "pe-accent", "stroke-dasharray": "2 3", ...across }));
  const dot = { cx: x(position), cy: y(position), r: 5 };
  node.append(svg("circle", { class: "pe-accent", ...dot }));
  for (const value of [-1, 1]) {
    const place = { x: middle + value * (strip / 2 - 8), y: TOP - 7 };
    node.append(svg("text", { "text-anchor": "middle", ...place }, number(value)));
  }
}

function readout(table) {
  const { position, channel, dModel, base } = table;
  const cell = explain(position, channel, table);
  const wave = cell.cosine ? "cos" : "sin";
  const [p, b, omega] = [number(position), number(base), significant(cell.omega, 5)];
  const power = `${2 * cell.pair}/${dModel}`;
  const value = number(cell.value, 4);
  return [
    [
      `PE[${p}, ${channel}] = ${wave}(${p} / ${b}`,
      html("span", { class: "pe-spoken" }, " to the power "),
      html("sup", {}, power),
      `) = ${wave}(${p} × ${omega}) = ${value}`,
    ],
    `Pair i = ${cell.pair} turns by ω = ${omega} rad per position: ` +
      `once in ${significant(cell.wavelength, 5)} positions.`,
  ];
}

export default { render };
