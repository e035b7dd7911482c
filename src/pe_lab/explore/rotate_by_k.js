// Chapter 05: clocks turned by M_k, and the matrix that turns them.
import { invFreq, maxDifference, sinusoidal } from "./_maths.js";
import { decades, explorable, number, significant, slider, toggle } from "./_common.js";
import { colourMap, css, heat, html, readableOn, svg } from "./_common.js";

/** M_k: blocks [[cos kω, sin kω], [−sin kω, cos kω]] on (sin, cos) pairs. */
export function rotationMatrix(offset, dModel, base) {
  const matrix = Array.from({ length: dModel }, () => new Array(dModel).fill(0));
  for (const [i, omega] of invFreq(dModel, base).entries()) {
    const [cos, sin] = [Math.cos(offset * omega), Math.sin(offset * omega)];
    const [s, c] = [2 * i, 2 * i + 1];
    [matrix[s][s], matrix[s][c]] = [cos, sin];
    [matrix[c][s], matrix[c][c]] = [-sin, cos];
  }
  return matrix;
}

export function transposed(matrix) {
  return matrix.map((_, i) => matrix.map((row) => row[i]));
}

/** M·x. */
export function apply(matrix, x) {
  return matrix.map((row) => row.reduce((sum, entry, j) => sum + entry * x[j], 0));
}

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    slider(frame, "position", { label: "position p" });
    slider(frame, "offset", { label: "offset k" });
    slider(frame, "d_model", {
      label: "width d_model",
      format: (d) => `${d} (${d / 2} ${d === 2 ? "clock" : "clocks"})`,
    });
    slider(frame, "base", { label: "base", stops: decades(10, 1e6) });
    toggle(frame, "transpose", { label: "use the transpose of Mₖ" });
    frame.figure.classList.add("pe-columns");
    return (width) => {
      const state = compute(frame);
      const { columns, size, rest } = layOut(width, state.dModel / 2);
      const matrix = drawMatrix(frame, state, rest);
      frame.figure.replaceChildren(drawClocks(state, columns, size), matrix);
      return readout(state);
    };
  });
}

function compute(frame) {
  const names = ["position", "offset", "d_model", "base", "transpose"];
  const [p, k, dModel, base, flipped] = names.map(frame.get);
  const forward = rotationMatrix(k, dModel, base);
  const matrix = flipped ? transposed(forward) : forward;
  const [start, ahead, behind] = [p, p + k, p - k].map((at) =>
    sinusoidal(at, dModel, base),
  );
  const turned = apply(matrix, start);
  return { p, k, dModel, base, flipped, matrix, start, ahead, behind, turned };
}

/** Clocks in at most two rows beside the matrix, or in rows of four above it. */
function layOut(width, count) {
  const [gap, least] = [24, 250];
  const wide = width > 620;
  const columns = wide ? Math.ceil(count / 2) : Math.min(4, count);
  const room = wide ? width - gap - least : width;
  const size = Math.min(146, room / columns);
  const rest = wide ? width - gap - columns * size : width;
  return { columns, size, rest: Math.min(wide ? 340 : 300, rest) };
}

function drawClocks(state, columns, size) {
  const count = state.dModel / 2;
  const width = Math.max(columns * size, 240); // room for the key
  const rows = Math.ceil(count / columns);
  const tall = size + 22;
  const height = rows * tall + 20;
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  node.append(key(state));
  for (let i = 0; i < count; i++) {
    const cx = ((i % columns) + 0.5) * size;
    const cy = 20 + Math.floor(i / columns) * tall + size / 2;
    node.append(drawClock(state, i, cx, cy, size / 2 - 14));
  }
  return node;
}

/** What the marks mean, in words of their own colour. */
function key({ flipped }) {
  const part = (text, kind) => svg("tspan", { class: kind }, text);
  const name = flipped ? "Mₖᵀ·PE(p)" : "Mₖ·PE(p)";
  return svg(
    "text",
    { x: 4, y: 12 },
    part("PE(p)", "pe-position"),
    " turned to ",
    part(name, "pe-accent pe-strong"),
    "\u2003○ PE(p + k)",
  );
}

function drawClock({ k, dModel, base, flipped, ...state }, i, cx, cy, radius) {
  const angle = (flipped ? -k : k) * invFreq(dModel, base)[i];
  const tip = (vector, length) => [
    cx + length * vector[2 * i],
    cy - length * vector[2 * i + 1],
  ];
  const group = svg("g", {}, svg("circle", { class: "pe-dial", cx, cy, r: radius }));
  const twelve = { x1: cx, x2: cx, y1: cy - radius, y2: cy - radius + 5 };
  group.append(svg("line", { class: "pe-axis", ...twelve }));
  group.append(drawArc(state, i, { cx, cy, angle, radius: radius * 0.45 }));
  const hand = (vector, kind) => {
    const [x2, y2] = tip(vector, radius - 2);
    const line = { x1: cx, y1: cy, x2, y2 };
    group.append(svg("line", { class: `pe-stroke pe-hand ${kind}`, ...line }));
  };
  hand(state.start, "pe-position");
  hand(state.turned, "pe-accent");
  const [x, y] = tip(state.ahead, radius);
  group.append(svg("circle", { class: "pe-target", cx: x, cy: y, r: 6 }));
  const label = { x: cx, y: cy + radius + 22, "text-anchor": "middle" };
  const name = i === 0 ? `turn ${number(angle, 2)} rad` : number(angle, 2);
  group.append(svg("text", label, name));
  return group;
}

/** The way from PE(p) to the turned hand: clockwise if the angle is positive. */
function drawArc({ start }, i, { cx, cy, angle, radius }) {
  const shown = Math.sign(angle) * Math.min(Math.abs(angle), 2 * Math.PI);
  const from = Math.atan2(start[2 * i], start[2 * i + 1]);
  const steps = Array.from({ length: 49 }, (_, step) => from + (shown * step) / 48);
  const points = steps.map(
    (a) => `${(cx + radius * Math.sin(a)).toFixed(1)},${(cy - radius * Math.cos(a)).toFixed(1)}`,
  );
  return svg("path", { class: "pe-arc", d: `M${points.join("L")}` });
}

function drawMatrix(frame, { k, dModel, matrix, flipped }, room) {
  const cell = Math.min(60, room / dModel);
  const [width, height] = [Math.max(180, cell * dModel), cell * dModel + 22];
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  const name = flipped ? "Mₖᵀ" : "Mₖ";
  const title = `${name} for k = ${number(k)}: no p in it`;
  node.append(svg("text", { x: 0, y: 12 }, title));
  const map = colourMap(frame.root);
  for (const [i, row] of matrix.entries()) {
    for (const [j, value] of row.entries()) {
      const [x, y] = [j * cell, 21 + i * cell];
      const colour = heat(map, value);
      const size = { x, y, width: cell, height: cell, fill: css(colour) };
      node.append(svg("rect", { class: "pe-cell", ...size }));
      const inBlock = Math.floor(i / 2) === Math.floor(j / 2);
      if (cell < 26 || !inBlock) continue;
      const place = { x: x + cell / 2, y: y + cell / 2 + 4, "text-anchor": "middle" };
      const style = `fill: ${readableOn(colour)}; font-size: ${cell < 40 ? 11 : 12}px`;
      node.append(svg("text", { ...place, style }, number(value, 2)));
    }
  }
  return node;
}

function readout({ p, k, flipped, turned, ahead, behind }) {
  const gap = (other) => significant(maxDifference(turned, other), 2);
  const name = flipped ? "Mₖᵀ·PE" : "Mₖ·PE";
  const at = (position) => `PE(${number(position)})`;
  const lines = [
    `max |${name}(${p}) − ${at(p + k)}| = ${gap(ahead)}, with p = ${p} and k = ${number(k)}`,
  ];
  if (flipped) lines.push(`max |${name}(${p}) − ${at(p - k)}| = ${gap(behind)}: it went back`);
  return lines;
}

export default { render };
