// view.js - numbers as text, and elements. Text of a node only ever becomes text nodes.

const SVG = 'http://www.w3.org/2000/svg';

/* element('p', {class: 'quiet'}, 'text', child...) */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export const at = (id) => document.getElementById(id);

/* Sets text only when it changed, so that screen readers hear changes alone. */
export function say(id, text) {
  const node = at(id);
  if (node.textContent !== text) node.textContent = text;
}

/* A text whose parts in backquotes are typed, as elements. */
export function typed(text) {
  return text.split('`').map((part, k) => (k % 2 ? element('code', {}, part) : part)).filter((part) => part !== '');
}

export function sayTyped(id, text) {
  const node = at(id);
  if (node.dataset.said === text) return;
  node.dataset.said = text;
  node.replaceChildren(...typed(text));
}

export const has = (value) => typeof value === 'number' && Number.isFinite(value);

export function digits(value, most = 3) {
  if (!has(value)) return '–';
  const places = value === 0 ? 0 : Math.max(0, most - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, most));
}

function scaled(value, units, base) {
  let k = 0;
  while (Math.abs(value) >= base * 0.9995 && k < units.length - 1) { value /= base; k++; }
  return [k === 0 && Number.isInteger(value) ? String(value) : digits(value), units[k]];
}

export function bytes(value) {
  return has(value) ? scaled(value, ['B', 'kB', 'MB', 'GB', 'TB'], 1000).join(' ') : '–';
}

export const rate = (value) => (has(value) ? `${bytes(value)}/s` : '–');

export function short(value) {
  return has(value) ? scaled(value, ['', 'k', 'M', 'G', 'T'], 1000).join('') : '–';
}

export const count = (value) => (has(value) ? value.toLocaleString('en').replaceAll(',', '\u202f') : '–');
export const loss = (value) => (has(value) ? value.toFixed(3) : '–');
export const percent = (ratio) => (has(ratio) ? `${digits(100 * ratio)} %` : '–');

/* Units as in `thinwire status`. Rounded before it is divided, so no unit ever shows its next one. */
export function duration(s) {
  if (!has(s)) return '–';
  if (s < 0.9995) return `${Math.round(1000 * s)} ms`;
  const whole = Math.round(s), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (whole < 120) return `${whole} s`;
  if (hours < 1) return `${minutes} min`;
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/* "1 peer", "2 peers" */
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

/* A bar of a share from 0 to 1; `mood` 'warn' paints it as full. */
export function bar(ratio, mood) {
  const inner = element('i');
  inner.style.width = `${100 * Math.min(1, Math.max(0, ratio))}%`;
  return element('div', { class: 'bar', 'data-mood': mood }, inner);
}

/* A term with its description, for a <dl>. */
export function fact(name, ...value) {
  return element('div', {}, element('dt', {}, name), element('dd', {}, ...value));
}

/* The word for a peer: its name, unique among the peers, else its id. */
export const label = (peer) => peer.name ?? peer.id_short ?? peer.address ?? '?';

/* The state of a link in one word, which is also its class of colour. */
export function mood(peer) {
  if (peer.link === 'refused') return 'refused';
  if (peer.link !== 'alive' && peer.link !== 'up') return 'waits';
  return peer.anomaly || peer.stall || peer.strike || peer.refused || peer.refuses ? 'slow' : 'good';
}
