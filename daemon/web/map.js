// map.js - this node in the middle, its peers around it, a line for each link.
import { at, count, element, label, mood, plural, rate, say, shape } from './view.js';

const LABELS_MAX = 20;
const NAMES = {
  direct: 'direct', mapped: 'through a port at the router', punched: 'punched through NAT', relayed: 'relayed by a member',
  slow: 'slow or penalised', refused: 'refused', waits: 'not linked',
};

const isLinked = (peer) => peer.link === 'alive' || peer.link === 'up';
const fastest = (peer) => Math.max(peer.in_bytes_per_s || 0, peer.out_bytes_per_s || 0);

/* 1.5 to 4.5 pixels, a step more for each factor of ten above 10 kB/s. */
function thickness(peer) {
  const most = fastest(peer);
  return most > 0 ? Math.min(4.5, Math.max(1.5, Math.log10(most / 1000))) : 1.75;
}

/* Places around the middle; many peers stand in two or three rings. */
function place(peers, width, height) {
  const rings = peers.length > 40 ? 3 : peers.length > LABELS_MAX ? 2 : 1;
  const margin = { x: peers.length > LABELS_MAX ? 16 : 52, y: peers.length > LABELS_MAX ? 14 : 34 };
  return new Map(peers.map((peer, i) => {
    const part = 1 - 0.27 * (i % rings), angle = 2 * Math.PI * i / peers.length - (peers.length > 2 ? Math.PI / 2 : 0);
    return [peer, { x: width / 2 + (width / 2 - margin.x) * part * Math.cos(angle),
      y: height / 2 + (height / 2 - margin.y) * part * Math.sin(angle) }];
  }));
}

function describe(peer) {
  const words = [`Node ${label(peer)}${peer.name ? ` (${peer.id_short})` : ''}: ${peer.absence ?? peer.link}`];
  if (peer.path) words.push(peer.path + (peer.via ? ` by ${peer.via_name ?? peer.via}` : ''));
  if (peer.in_bytes_per_s) words.push(`its path to this node carries ${rate(peer.in_bytes_per_s)}`);
  if (peer.out_bytes_per_s) words.push(`the path to it ${rate(peer.out_bytes_per_s)}`);
  return words.join(', ') + (peer.anomaly || peer.error ? `. ${peer.anomaly ?? peer.error}` : '');
}

/* A bow from one place to another, away from the middle. */
function bow(from, to, middle) {
  const half = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const side = { x: (from.y - to.y) * 0.35, y: (to.x - from.x) * 0.35 };
  const isOut = side.x * (half.x - middle.x) + side.y * (half.y - middle.y) >= 0 ? 1 : -1;
  return `M${from.x} ${from.y}Q${half.x + isOut * side.x} ${half.y + isOut * side.y} ${to.x} ${to.y}`;
}

/* A link from the middle to a peer. A relayed one begins at its relay, where that is on the map. */
function edge(peer, places, relays, middle) {
  const to = places.get(peer), relay = peer.via ? relays.get(peer.via) : null;
  const kind = mood(peer), style = isLinked(peer) ? `${peer.path ?? 'direct'} ${kind}` : kind;
  const path = relay && relay !== peer ? bow(places.get(relay), to, middle) : `M${middle.x} ${middle.y}L${to.x} ${to.y}`;
  return shape('path', { class: `edge ${style}`, d: path, 'stroke-width': isLinked(peer) ? thickness(peer) : 1.5 });
}

export function drawMap(peers, nodeName, width) {
  const height = Math.round(Math.min(400, Math.max(230, width * 0.62)));
  const sorted = [...peers].sort((a, b) => String(a.id ?? a.address).localeCompare(String(b.id ?? b.address)));
  const places = place(sorted, width, height), middle = { x: width / 2, y: height / 2 };
  const relays = new Map(sorted.map((peer) => [peer.id_short, peer]));
  const linked = sorted.filter(isLinked), hasLabels = sorted.length <= (width < 420 ? 8 : LABELS_MAX);
  const summary = linked.length === 0 ? 'No peer is linked.'
    : `${count(linked.length)} of ${plural(sorted.length, 'known peer')} ${linked.length === 1 ? 'is' : 'are'} linked.`;
  const svg = shape('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Map of links. ${summary} The table of peers has all of it.` });
  for (const peer of sorted) svg.append(edge(peer, places, relays, middle));
  for (const peer of sorted) {
    const { x, y } = places.get(peer);
    svg.append(shape('g', {}, shape('title', {}, describe(peer)),
      shape('circle', { class: `dot ${mood(peer)}`, cx: x, cy: y, r: sorted.length > LABELS_MAX ? 5 : 7 })));
    if (!hasLabels) continue;
    svg.append(shape('text', { class: 'id', x, y: y - 13 }, label(peer)));
    const note = !isLinked(peer) ? peer.link : fastest(peer) > 0 ? `carries ${rate(fastest(peer))}` : peer.path;
    svg.append(shape('text', { x, y: y + 21 }, note));
  }
  svg.append(shape('circle', { class: 'dot self', cx: middle.x, cy: middle.y, r: 11 }),
    shape('text', { class: 'id', x: middle.x, y: middle.y + 26 }, nodeName));
  at('map').replaceChildren(svg);
  say('links-read', summary);
  fillLegend(sorted);
}

/* Only the kinds that are on the map. */
function fillLegend(peers) {
  const kinds = new Set();
  for (const peer of peers) {
    if (isLinked(peer)) kinds.add(peer.path ?? 'direct');
    if (mood(peer) !== 'good') kinds.add(mood(peer));
  }
  at('map-legend').replaceChildren(...Object.keys(NAMES).filter((kind) => kinds.has(kind)).map((kind) =>
    element('li', {}, shape('svg', { width: 30, height: 8, 'aria-hidden': 'true' },
      shape('line', { class: `edge ${kind}`, x1: 2, x2: 28, y1: 4, y2: 4, 'stroke-width': 2.5 })), NAMES[kind])));
}
