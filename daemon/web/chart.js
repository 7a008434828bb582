// chart.js - the curve of losses (SVG) and the strips of rounds (canvas).
import { at, count, element, has, loss, plural, say, shape } from './view.js';

const SERIES = [
  ['train_nats', 'train', 'Training, smoothed'],
  ['live_nats', 'live', 'Validation, this node'],
  ['anchor_nats', 'anchor', 'Validation, anchor'],
];
const SPOTS_MAX = 24;
const LEFT = 44, RIGHT = 10, TOP = 10, BOTTOM = 24;

/* Round numbers that divide low to high into about `wanted` parts. */
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((k) => k * power >= raw) || 10);
  const list = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) list.push(value);
  return [list, step];
}

/* ---- losses ---- */

let shown = null; // the data and scales of the drawn curve, for the cross

export function drawLosses(losses, width) {
  const box = at('loss-plot');
  const height = Math.round(Math.min(360, Math.max(190, width * 0.5)));
  const steps = losses.steps, values = [];
  for (const [key] of SERIES) for (const value of losses[key]) if (has(value)) values.push(value);
  const isEmpty = steps.length < 2 || values.length < 2;
  if (isEmpty) {
    shown = null;
    box.replaceChildren(element('p', { class: 'quiet' }, 'No losses of this node yet.'));
    return;
  }
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low) * 0.06 || 0.1;
  low = Math.max(0, low - room); high += room;
  const first = steps[0], last = steps[steps.length - 1];
  const x = (step) => LEFT + (width - LEFT - RIGHT) * (last > first ? (step - first) / (last - first) : 0);
  const y = (value) => TOP + (height - TOP - BOTTOM) * (high - value) / (high - low);
  const label = `Loss from step ${count(first)} to ${count(last)}. ` + SERIES.map(([key, , name]) => {
    const known = losses[key].filter(has);
    return known.length ? `${name}: ${loss(known[0])} to ${loss(known[known.length - 1])} nats per token.` : '';
  }).join(' ');
  const svg = shape('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0,
    'aria-label': `${label} Left and right arrow keys read points.` });
  const [rows, rowStep] = ticks(low, high, height / 46);
  for (const value of rows) {
    svg.append(shape('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      shape('text', { x: LEFT - 8, y: y(value) + 4, 'text-anchor': 'end' }, value.toFixed(Math.max(0, -Math.floor(Math.log10(rowStep))))));
  }
  for (const value of ticks(first, last, width / 110)[0]) {
    svg.append(shape('text', { x: x(value), y: height - 6, 'text-anchor': 'middle' }, count(Math.round(value))));
  }
  for (const [key, name] of SERIES) {
    const points = [];
    losses[key].forEach((value, i) => { if (has(value)) points.push(`${x(steps[i]).toFixed(1)},${y(value).toFixed(1)}`); });
    if (points.length > 1) svg.append(shape('polyline', { class: `line ${name}`, points: points.join(' ') }));
    /* Few points are shown as such: a straight line between two would look measured. */
    for (const point of points.slice(points.length > SPOTS_MAX ? -1 : 0)) {
      const [cx, cy] = point.split(',');
      svg.append(shape('circle', { class: `spot ${name}`, cx, cy, r: 2.5 }));
    }
  }
  const cross = shape('g');
  svg.append(cross);
  shown = { losses, x, y, cross, height, index: shown ? Math.min(shown.index, steps.length - 1) : steps.length - 1 };
  svg.addEventListener('pointermove', (event) => {
    const step = first + (event.offsetX - LEFT) / (width - LEFT - RIGHT) * (last - first);
    read(nearest(steps, step));
  });
  svg.addEventListener('pointerleave', rest);
  svg.addEventListener('blur', rest);
  svg.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: 20, PageDown: -20, Home: -steps.length, End: steps.length }[event.key];
    if (!by) return;
    event.preventDefault();
    read(Math.min(steps.length - 1, Math.max(0, shown.index + by)));
  });
  const hadFocus = box.contains(document.activeElement);
  box.replaceChildren(svg);
  if (hadFocus) svg.focus({ preventScroll: true });
  rest();
  fillLegend();
  fillRows(losses);
}

function nearest(steps, wanted) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle; else high = middle;
  }
  return wanted - steps[low] < steps[high] - wanted ? low : high;
}

/* Shows one point, and the newest known values of validation up to it. */
function read(index) {
  const { losses, x, y, cross, height } = shown, at_x = x(losses.steps[index]);
  shown.index = index;
  cross.replaceChildren(shape('line', { class: 'cross', x1: at_x, x2: at_x, y1: TOP, y2: height - BOTTOM }));
  const words = [`Step ${count(losses.steps[index])}`];
  for (const [key, name, title] of SERIES) {
    let i = index;
    while (i >= 0 && !has(losses[key][i])) i--;
    if (i < 0) continue;
    words.push(`${title.toLowerCase()} ${loss(losses[key][i])}`);
    cross.append(shape('circle', { class: `spot ${name}`, cx: x(losses.steps[i]), cy: y(losses[key][i]), r: 3.5 }));
  }
  say('loss-read', words.join(' · '));
}

function rest() {
  if (shown === null) return;
  shown.cross.replaceChildren();
  shown.index = shown.losses.steps.length - 1;
  say('loss-read', 'Nats per token, by inner step of this node');
}

function fillLegend() {
  if (at('loss-legend').childElementCount > 0) return;
  at('loss-legend').append(...SERIES.map(([, name, title]) => element('li', {},
    shape('svg', { width: 22, height: 8, 'aria-hidden': 'true' },
      shape('line', { class: `line ${name}`, x1: 1, x2: 21, y1: 4, y2: 4 })), title)));
}

/* About 40 rows, newest first; rows with a validation are preferred. */
function fillRows(losses) {
  const every = Math.max(1, Math.ceil(losses.steps.length / 40)), rows = [];
  for (let i = losses.steps.length - 1; i >= 0; i -= every) {
    let best = i;
    for (let k = i; k > i - every && k >= 0; k--) if (has(losses.live_nats[k])) best = k;
    rows.push(element('tr', {}, element('th', { scope: 'row' }, count(losses.steps[best])),
      ...SERIES.map(([key]) => element('td', {}, loss(losses[key][best])))));
  }
  at('loss-rows').replaceChildren(...rows);
}

/* ---- rounds ---- */

const OUTCOMES = [
  ['m', '--ours', 'merged with this node’s work'],
  ['o', '--others', 'merged without it'],
  ['s', '--alone', 'with this node’s work alone'],
  ['e', '--empty', 'closed with no work in it'],
  ['.', '--unseen', 'closed while this node was away'],
];

function canvasIn(box, width, height, label) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = element('canvas', { role: 'img', 'aria-label': label, width: Math.round(width * ratio), height: Math.round(height * ratio) });
  canvas.style.height = `${height}px`;
  const paint = canvas.getContext('2d');
  paint.scale(ratio, ratio);
  at(box).replaceChildren(canvas);
  return paint;
}

/* The colours of the present theme. Reading them makes the browser compute styles: do it first. */
export function palette() {
  const style = getComputedStyle(document.documentElement), colours = { text: style.getPropertyValue('--quiet') };
  for (const [letter, name] of OUTCOMES) colours[letter] = style.getPropertyValue(name);
  return colours;
}

export function drawRounds(rounds, width, colours) {
  const { outcomes } = rounds;
  const totals = { m: 0, o: 0, s: 0, e: 0, '.': 0 };
  for (const letter of outcomes) totals[letter]++;
  const words = OUTCOMES.filter(([letter]) => totals[letter] > 0).map(([letter, , title]) => `${count(totals[letter])} ${title}`);
  const summary = outcomes.length === 0 ? 'No round has closed yet.' : `${plural(outcomes.length, 'round')}: ${words.join(', ')}.`;
  say('rounds-read', summary);
  at('rounds-legend').replaceChildren(...OUTCOMES.filter(([letter]) => totals[letter] > 0).map(([letter, , title]) => {
    const swatch = element('i');
    swatch.style.background = colours[letter];
    return element('li', {}, swatch, title);
  }));
  at('strips').hidden = outcomes.length === 0;
  if (outcomes.length === 0) return;
  drawRecent(rounds, width, colours);
  drawAll(rounds, width, colours, summary);
}

/* A column for each pass over the fragments, a row for each fragment. */
function drawRecent({ outcomes, first_round: first, fragments }, width, colours) {
  const cell = fragments > 24 ? 5 : fragments > 8 ? 10 : fragments > 4 ? 14 : 18, gap = cell > 6 ? 2 : 1, label = 74;
  const newest = Math.floor((first + outcomes.length - 1) / fragments);
  const paint = canvasIn('rounds-recent', width, fragments * cell, `The newest rounds of ${fragments} fragments, one row each.`);
  const columns = Math.max(1, Math.floor((width - label) / cell));
  paint.font = '11px system-ui, sans-serif';
  paint.fillStyle = colours.text;
  paint.textBaseline = 'middle';
  if (cell >= 9) for (let f = 0; f < fragments; f++) paint.fillText(`fragment ${f}`, 0, f * cell + cell / 2 - 1);
  let oldest = null;
  for (let column = 0; column < columns; column++) {
    const pass = newest - columns + 1 + column;
    for (let f = 0; f < fragments; f++) {
      const i = pass * fragments + f - first;
      if (i < 0 || i >= outcomes.length) continue;
      oldest = oldest ?? pass * fragments + f;
      paint.fillStyle = colours[outcomes[i]];
      paint.fillRect(label + column * cell, f * cell, cell - gap, cell - gap);
    }
  }
  say('recent-from', oldest === null ? '' : `from round ${count(oldest)}`);
}

/* Each column is an equal part of all rounds; its heights are the shares of the outcomes. */
function drawAll({ outcomes, first_round: first }, width, colours, summary) {
  const height = 56, paint = canvasIn('rounds-all', width, height, summary);
  const columns = Math.max(1, Math.min(Math.floor(width / 3), outcomes.length)), pixels = width / columns;
  for (let column = 0; column < columns; column++) {
    const from = Math.floor(column * outcomes.length / columns), to = Math.max(from + 1, Math.floor((column + 1) * outcomes.length / columns));
    const shares = {};
    for (let i = from; i < to; i++) shares[outcomes[i]] = (shares[outcomes[i]] || 0) + 1;
    let top = height;
    for (const [letter] of OUTCOMES) {
      const part = height * (shares[letter] || 0) / (to - from);
      paint.fillStyle = colours[letter];
      paint.fillRect(column * pixels, top - part, pixels > 5 ? pixels - 1 : pixels + 0.5, part);
      top -= part;
    }
  }
  say('all-from', `round ${count(first)}`);
}
