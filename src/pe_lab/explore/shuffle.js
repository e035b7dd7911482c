// Chapter 01: one attention head on a sentence and on its permutation.
import { maxDifference, sinusoidal } from "./_maths.js";
import { buttons, explorable, html, number, significant } from "./_common.js";
import { colourMap, css, heat, svg, toggle } from "./_common.js";

const WIDTH = 8; // d_model of the toy head

/** Independent N(0, 1) numbers, always the same for one seed (mulberry32, Box-Muller). */
export function gaussians(seed, count) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    return radius * Math.cos(2 * Math.PI * uniform());
  });
}

/** The embedding of a word: the same for the same letters, wherever it stands. */
export function embed(word) {
  let seed = 10; // FNV-1a hash of the letters, with a start that keeps ours apart
  for (const letter of word) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
  return gaussians(seed, WIDTH);
}

/** W_Q, W_K, W_V: entries N(0, 1/d), fixed once and for all. */
export function weights() {
  return [1, 2, 3].map((seed) => {
    const entries = gaussians(seed, WIDTH * WIDTH).map((w) => w / Math.sqrt(WIDTH));
    return Array.from({ length: WIDTH }, (_, i) =>
      entries.slice(i * WIDTH, (i + 1) * WIDTH),
    );
  });
}

const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);

/** softmax(Q Kᵀ/√d) V, one row per token; with `causal`, only tokens up to its own. */
export function attend(rows, causal) {
  const [q, k, v] = weights().map((w) => rows.map((x) => w.map((unit) => dot(unit, x))));
  return q.map((query, m) => {
    const seen = causal ? m + 1 : rows.length;
    const scores = k.slice(0, seen).map((key) => dot(query, key) / Math.sqrt(WIDTH));
    const top = Math.max(...scores);
    const share = scores.map((score) => Math.exp(score - top));
    const total = share.reduce((a, b) => a + b);
    return v[0].map((_, c) => share.reduce((sum, w, n) => sum + w * v[n][c], 0) / total);
  });
}

/** f(X) and f(PX), how far each output moved from P f(X), and how far their mean did. */
export function compare(words, order, { causal, addPosition }) {
  const run = (sequence) => {
    const place = (x, p) =>
      addPosition ? x.map((value, c) => value + sinusoidal(p, WIDTH, 1e4)[c]) : x;
    return attend(sequence.map(embed).map(place), causal);
  };
  const straight = run(words);
  const shuffled = run(order.map((i) => words[i]));
  const gaps = order.map((i, place) => maxDifference(shuffled[place], straight[i]));
  const mean = (rows) =>
    rows[0].map((_, c) => rows.reduce((sum, row) => sum + row[c], 0) / rows.length);
  const pooled = maxDifference(mean(straight), mean(shuffled));
  return { straight, shuffled, gaps, most: Math.max(...gaps), pooled };
}

/** The word at one place taken out and put in at another. */
export function moved(order, from, to) {
  const rest = order.filter((_, place) => place !== from);
  return [...rest.slice(0, to), order[from], ...rest.slice(to)];
}

/** Another order than this one, drawn from a seed. */
export function shuffledFrom(order, seed) {
  const keys = gaussians(seed, order.length);
  const drawn = order.map((_, place) => place).sort((a, b) => keys[a] - keys[b]);
  const next = drawn.map((place) => order[place]);
  return String(next) === String(order) ? [...order].reverse() : next;
}

const SAME = 1e-12; // what rounding alone can do stays below it
const CELL = 11; // height of a channel
const COLUMN = WIDTH * CELL;
const LEFT = 42; // room for the names f(X) and f(PX)
const GAP = 6; // between two cards
const LOWER = 30 + COLUMN + 64; // top of the lower sentence

function render({ model, el }) {
  return explorable({ model, el }, (frame) => {
    addControls(frame);
    const row = html("div", {
      class: "pe-cards",
      role: "group",
      "aria-label": "Words in their new order; arrow keys move the focused word",
    });
    const state = { row, cards: [], words: null, drag: null, place: 0 };
    return (width) => {
      const { words, order } = read(frame);
      if (String(words) !== String(state.words)) makeCards(frame, state, words);
      const settings = { causal: frame.get("causal"), addPosition: frame.get("add_position") };
      const found = compare(words, order, settings);
      state.place = Math.min(140, (width - LEFT) / words.length);
      const colour = scale(frame, found);
      const drawing = drawUpper(found, words, order, state.place, colour);
      frame.figure.replaceChildren(drawing, row);
      placeCards(state, found, words, order, colour);
      return readout(found, order);
    };
  });
}

function read(frame) {
  const words = frame.get("sentence").split(" ");
  const order = frame.get("order");
  const asItIs = words.map((_, i) => i); // while a new sentence's order is on its way
  return { words, order: order.length === words.length ? order : asItIs };
}

function addControls(frame) {
  let seed = 0;
  const set = (order) => frame.set("order", order);
  buttons(frame, [
    ["Shuffle", () => set(shuffledFrom(read(frame).order, ++seed))],
    ["Reverse", () => set([...read(frame).order].reverse())],
    ["Restore", () => set(read(frame).words.map((_, i) => i))],
  ]);
  toggle(frame, "causal", { label: "causal mask" });
  toggle(frame, "add_position", { label: "add positions (sinusoidal)" });
}

/** One colour scale for all outputs, symmetric about zero. */
function scale(frame, { straight, shuffled }) {
  const most = Math.max(...[...straight, ...shuffled].flat().map(Math.abs));
  const map = colourMap(frame.root);
  return (value) => css(heat(map, value / most));
}

function column(values, x, y, width, colour) {
  const group = svg("g");
  for (const [c, value] of values.entries()) {
    const cell = { x, y: y + c * CELL, width, height: CELL, fill: colour(value) };
    group.append(svg("rect", { class: "pe-cell", ...cell }));
  }
  return group;
}

const columnWidth = (place) => Math.min(64, place - 14);

function drawUpper({ straight, gaps }, words, order, place, colour) {
  const [width, height] = [LEFT + place * words.length, LOWER + 30 + COLUMN + 24];
  const node = svg("svg", { width, height, "aria-hidden": "true" });
  const wide = columnWidth(place);
  for (const [i, word] of words.entries()) {
    const x = LEFT + (i + 0.5) * place;
    const size = `font-size: ${fit(word, place)}px`;
    const text = { class: "pe-ink", x, y: 18, "text-anchor": "middle", style: size };
    node.append(svg("text", text, word));
    node.append(column(straight[i], x - wide / 2, 28, wide, colour));
  }
  for (const [name, top] of [["f(X)", 28], ["f(PX)", LOWER + 28]]) {
    node.append(svg("text", { x: 0, y: top + COLUMN / 2 + 4 }, name));
  }
  for (const [to, from] of order.entries()) {
    const [x1, x2] = [from, to].map((at) => LEFT + (at + 0.5) * place);
    const [y1, y2] = [30 + COLUMN, LOWER - 2];
    const middle = (y1 + y2) / 2;
    const d = `M${x1},${y1}C${x1},${middle} ${x2},${middle} ${x2},${y2}`;
    const kind = gaps[to] < SAME ? "pe-thread" : "pe-thread pe-accent";
    node.append(svg("path", { class: kind, d }));
  }
  return node;
}

/** A size in pixels at which a word fits its place. */
function fit(word, place) {
  return Math.max(8, Math.min(15, (place - 6) / (0.6 * word.length)));
}

function makeCards(frame, state, words) {
  state.words = words;
  state.cards = words.map((_, index) => {
    const card = html("button", { type: "button", class: "pe-card" });
    letWalk(frame, card, index);
    letDrag(frame, state, card, index);
    return card;
  });
  state.row.replaceChildren(...state.cards);
}

/** Arrow keys move the focused word by one place. */
function letWalk(frame, card, index) {
  card.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const { order } = read(frame);
    const from = order.indexOf(index);
    const to = Math.min(order.length - 1, Math.max(0, from + step));
    frame.set("order", moved(order, from, to));
  });
}

/** A pressed word follows the pointer, and the others make room. */
function letDrag(frame, state, card, index) {
  card.addEventListener("pointerdown", (event) => {
    card.setPointerCapture(event.pointerId);
    const left = card.getBoundingClientRect().left - state.row.getBoundingClientRect().left;
    state.drag = { index, grip: event.clientX - left, left };
  });
  card.addEventListener("pointermove", (event) => {
    if (state.drag?.index !== index) return;
    state.drag.left = event.clientX - state.drag.grip;
    putCard(state, card, 0, index);
    const { order } = read(frame);
    const to = Math.round(state.drag.left / state.place);
    const inside = Math.min(order.length - 1, Math.max(0, to));
    const from = order.indexOf(index);
    if (inside !== from) frame.set("order", moved(order, from, inside));
  });
  const drop = () => {
    if (state.drag?.index !== index) return;
    state.drag = null;
    putCard(state, card, read(frame).order.indexOf(index), index);
  };
  card.addEventListener("pointerup", drop);
  card.addEventListener("pointercancel", drop);
}

/** Stand a card at its place, or where the pointer holds it. */
function putCard({ drag, place }, card, at, index) {
  const held = drag?.index === index;
  const last = place * (card.parentElement.children.length - 1);
  const left = held ? Math.min(last, Math.max(0, drag.left)) : at * place;
  card.classList.toggle("pe-held", held);
  card.style.transform = `translateX(${left + GAP / 2}px)`;
}

function placeCards(state, { shuffled, gaps }, words, order, colour) {
  Object.assign(state.row.style, { left: `${LEFT}px`, top: `${LOWER}px` });
  for (const [at, index] of order.entries()) {
    const [card, word, gap] = [state.cards[index], words[index], gaps[at]];
    const same = gap < SAME;
    const size = gap < 0.001 ? "< 0.001" : number(gap, gap < 0.1 ? 3 : 2);
    const told = same ? "same" : state.place < 80 ? size : `off by ${size}`;
    const wide = columnWidth(state.place);
    const drawing = svg("svg", { width: wide, height: COLUMN, "aria-hidden": "true" });
    drawing.append(column(shuffled[at], 0, 0, wide, colour));
    const name = html("span", { class: "pe-word" }, word);
    name.style.fontSize = `${fit(word, state.place)}px`;
    const note = html("span", { class: same ? "pe-note" : "pe-note pe-changed" }, told);
    card.replaceChildren(name, drawing, note);
    card.style.width = `${state.place - GAP}px`;
    putCard(state, card, at, index);
  }
}

function readout({ most, pooled }, order) {
  const size = (value) => significant(value, 2);
  const still = order.every((index, place) => index === place);
  const travelled = still ? "nothing has moved yet" : "the outputs only travelled";
  const told = most < SAME ? travelled : "the outputs changed on the way";
  const mean = pooled < SAME ? "cannot tell the two apart" : "tells the two apart";
  return [
    `max |f(PX) − P f(X)| = ${size(most)}: ${told}.`,
    `The mean over the words differs by ${size(pooled)}: it ${mean}.`,
  ];
}

export default { render };
