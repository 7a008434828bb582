// page.js - asks the node every two seconds and draws the answers. Sends nothing but these questions.
import { drawLosses, drawRounds, palette } from './chart.js';
import { drawMap } from './map.js';
import { at, bar, bytes, count, digits, duration, element, fact, has, label, loss, mood, percent, plural, rate, say, sayTyped, short, typed } from './view.js';

const EVERY_MS = 2000, HISTORY_EVERY_MS = 10000, TIMEOUT_MS = 5000;

/* ---- the token: from the fragment of the link, kept for this tab alone ---- */

function takeToken() {
  const given = /^#([0-9a-f]{64})$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem('token', given[1]);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem('token');
}

class Locked extends Error {}

async function ask(path) {
  const token = sessionStorage.getItem('token');
  if (!token) throw new Locked('The address lacks the token, the long number after the # sign.');
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: 'no-store',
    credentials: 'omit', referrerPolicy: 'no-referrer', signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (answer.status === 401) {
    sessionStorage.removeItem('token');
    throw new Locked('The link that opened this page is no longer valid.');
  }
  if (!answer.ok) throw new Error(`the node answers ${answer.status}`);
  return answer.json();
}

/* ---- figures ---- */

function tile(name, value, unit, note, share) {
  return element('div', { class: 'tile' }, element('span', { class: 'name' }, name),
    element('span', { class: 'value' }, value, ' ', element('span', { class: 'unit' }, unit)),
    element('span', { class: 'quiet' }, note), ...(has(share) ? [bar(share)] : []));
}

/* The losses. A joining node has none of its own: a bar shows the transfer of the run's state. */
function lossTile({ train, join }) {
  if (has(train.validation_live_nats)) {
    const age = has(train.validation_age_s) ? `, ${duration(train.validation_age_s)} ago` : '';
    return tile('Validation loss', loss(train.validation_live_nats), 'nats',
      `anchor ${loss(train.validation_anchor_nats)}${age}, training ${loss(train.loss_nats)}`);
  }
  if (has(train.loss_nats)) return tile('Training loss', loss(train.loss_nats), 'nats', 'not validated yet');
  if (!join || !has(join.percent)) return tile('Loss', '–', 'nats', join ? 'not measured before the run’s state is here' : 'not measured yet');
  return tile(`Fetches its ${join.phase === 'data' ? 'data' : 'state'}`, digits(Math.floor(join.percent)), '%',
    `${bytes(join.bytes_here)} of ${bytes(join.bytes)}` + (has(join.eta_s) ? `, about ${duration(join.eta_s + 1)} left` : ''), join.percent / 100);
}

/* This node's speed, and that of the run. */
function speedTile({ run, train, worker, join }) {
  const others = run.others_training, hasOthers = others > 0 && has(run.tokens_per_s), step = `step ${count(train.steps)}`;
  const all = `${plural(others, 'other')} ${short(run.tokens_per_s)}`;
  if (worker.state === 'paused') {
    return tile('Speed', 'paused', '', hasOthers ? `${plural(others, 'other')} go${others === 1 ? 'es' : ''} on at ${short(run.tokens_per_s)} tokens/s, ${step}` : step);
  }
  if (worker.state === 'finished') return tile('Speed', 'finished', '', step);
  const notes = [...(join ? ['not in the run yet'] : []), ...(hasOthers ? [`with ${all}`] : []), step];
  if (!join && has(train.utilisation_minute_ratio)) notes.push(`${percent(train.utilisation_minute_ratio)} busy`);
  return tile('Speed', train.tokens_per_s > 0 ? short(train.tokens_per_s) : '–', 'tokens/s', notes.join(', '));
}

function drawTiles(status) {
  const { run, sync } = status, alive = `${plural(sync.alive_peers, 'peer')} alive`;
  const others = sync.topology !== 'group' ? alive : `${plural(sync.roster_members, 'member')}, ` +
    (sync.roster_voters < sync.roster_members ? `${count(sync.roster_voters)} vote${sync.roster_voters === 1 ? 's' : ''}, ` : '') + alive;
  const mixed = Math.min(sync.mixed_peers, sync.alive_peers);
  at('tiles').replaceChildren(
    lossTile(status),
    tile('Progress', has(run.done_percent) ? digits(Math.min(100, run.done_percent)) : '–', '%',
      `${short(run.clock_tokens)} of ${short(run.budget_tokens)} tokens` + (has(run.eta_s) ? `, ${duration(run.eta_s)} left` : ''),
      run.done_percent / 100),
    speedTile(status),
    tile('Merged with', count(mixed), mixed === 1 ? 'peer' : 'peers', others));
}

function meter(name, used, most, text) {
  const isOver = used > 1.02 * most;
  return fact(name, text, bar(most > 0 ? used / most : 0, isOver ? 'warn' : null));
}

function drawLine({ network, contributions }) {
  const { caps } = network, list = [];
  const flow = (name, now, cap) => (has(cap) ? meter(name, now, cap, `${rate(now)} of ${rate(cap)}`) : fact(name, `${rate(now)}, no cap`));
  list.push(flow('Upload, last minute', network.out_bytes_per_s, caps.upload_bytes_per_s));
  list.push(flow('Download, last minute', network.in_bytes_per_s, caps.download_bytes_per_s));
  if (has(contributions.budget_bytes_per_s)) {
    list.push(meter(`Budget of ${contributions.budget_counts}`, contributions.used_bytes_per_s, contributions.budget_bytes_per_s,
      `${rate(contributions.used_bytes_per_s)} of ${rate(contributions.budget_bytes_per_s)}`
      + (contributions.rounds_left_out > 0 ? `, ${plural(contributions.rounds_left_out, 'round')} left out` : '')));
  }
  if (has(caps.quota_bytes)) {
    list.push(meter(`Quota until ${caps.month_end}`, caps.month_bytes, caps.quota_bytes, `${bytes(caps.month_bytes)} of ${bytes(caps.quota_bytes)}`));
  } else {
    list.push(fact('This month', bytes(caps.month_bytes)));
  }
  if (caps.hours_until !== null) list.push(fact('Hours', `${has(caps.hours_bytes_per_s) ? rate(caps.hours_bytes_per_s) : 'no cap of their own'} until ${caps.hours_until}`));
  if (caps.links_rest !== 'none') list.push(fact('Links rest', `because of the ${caps.links_rest}`));
  if (has(contributions.bits_per_parameter)) list.push(fact('Contributions', `${digits(contributions.bits_per_parameter)} bits per parameter`));
  if (network.relay.on && network.relay.relayed_bytes > 0) list.push(fact('Relayed for others', `${bytes(network.relay.relayed_bytes)} on ${plural(network.relay.pipes, 'link')}`));
  list.push(fact('Reachable from outside', network.reachable.text || network.reachable.state));
  at('meters').replaceChildren(...list);
}

function drawMachine({ worker, checkpoint, node, data, run }) {
  const why = worker.pause ? ` by ${worker.pause.by.join(' and ')}${worker.pause.memory_given_back ? ', memory given back' : ''}` : '';
  const list = [fact('Worker', worker.state + why + (worker.restarts > 0 ? `, ${plural(worker.restarts, 'restart')}` : ''))];
  if (worker.engine || worker.device) list.push(fact('Computes on', worker.engine || worker.device));
  if (worker.gpu) list.push(fact('GPU', `${worker.gpu.load_percent} % busy` + (has(worker.gpu.temperature_c) ? `, ${worker.gpu.temperature_c} °C` : '')));
  if (has(worker.memory_bytes)) list.push(fact('Memory of the model', bytes(worker.memory_bytes)));
  list.push(fact('Model', `${short(run.model_params)} parameters`));
  list.push(fact('Checkpoint', has(checkpoint.steps) ? `step ${count(checkpoint.steps)}, ${duration(checkpoint.age_s)} ago` : 'none yet'));
  if (has(data.bytes)) list.push(fact('Dataset', `${bytes(data.bytes_here)} of ${bytes(data.bytes)} here`));
  list.push(fact('Daemon', `up ${duration(node.uptime_s)}, loop late ${duration(node.loop_lag_us / 1e6)} at most`));
  at('facts').replaceChildren(...list);
}

function drawSample({ train: { sample } }) {
  at('sample').hidden = sample === null;
  if (sample === null) return;
  say('sample-read', `At step ${count(sample.steps)}: a passage of the held-out text, and how the model goes on.`);
  say('sample-prompt', sample.prompt);
  say('sample-text', sample.text);
}

/* ---- lists ---- */

function drawWarnings(warnings) {
  const list = at('warnings').querySelector('ul'), text = warnings.map((w) => w.what + w.way_out).join();
  at('warnings').hidden = warnings.length === 0;
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...warnings.map((warning) => element('li', {}, element('strong', {}, ...typed(warning.what)), '→ ', ...typed(warning.way_out))));
}

const ORDER = { refused: 0, slow: 1, good: 2, waits: 3 };

// A peer that is away was heard before; its absence counts from then.
function heardText(peer) {
  const age = has(peer.heard_age_s) ? peer.heard_age_s : peer.absent_s;
  if (!has(age)) return 'never';
  return age < 2 ? 'now' : `${duration(age)} ago`;
}

function peerRows(peer) {
  const path = peer.path ? peer.path + (peer.via ? ` by ${peer.via_name ?? peer.via}` : '') : '–';
  const notes = [peer.absence, peer.error, peer.path_text, peer.anomaly, peer.clock_note, peer.large, peer.waits, peer.stall, peer.strike, peer.refused, peer.refuses, peer.twin].filter(Boolean);
  const number = (text, more = '') => element('td', { class: `num ${more}` }, text);
  const row = element('tr', { class: notes.length ? 'noted' : '' }, element('th', { scope: 'row', title: peer.id_short }, label(peer)),
    element('td', {}, element('span', { class: `state ${mood(peer)}` }, peer.link)), element('td', {}, path),
    number(has(peer.rtt_us) ? `${digits(peer.rtt_us / 1000)} ms` : '–'), number(rate(peer.in_bytes_per_s)), number(rate(peer.out_bytes_per_s)),
    number(has(peer.tokens_per_s) ? `${short(peer.tokens_per_s)} tok/s` : '–', 'wide'), number(count(peer.steps), 'wide'),
    number(percent(peer.token_share_ratio), 'wide'), number(heardText(peer), 'wide'));
  return notes.length ? [row, element('tr', { class: 'note' }, element('td', { colspan: 10 }, element('span', {}, ...typed(notes.join('; ')))))] : [row];
}

function drawPeers(peers) {
  const sorted = [...peers].sort((a, b) => ORDER[mood(a)] - ORDER[mood(b)] || String(a.id).localeCompare(String(b.id)));
  at('peer-rows').replaceChildren(...(sorted.length ? sorted.flatMap(peerRows)
    : [element('tr', {}, element('td', { colspan: 10 }, 'No other node is known yet.'))]));
}

/* The sentence of an event; without one, its values, of which the first may repeat its name. */
function sentence({ name, text }) {
  const said = /text="([^"]+)"/.exec(text)?.[1];
  if (said) return said;
  return text.replace(/([a-z_]+)=("[^"]*"|\S+)/g, (all, key, value) => (key === name ? value : `${key.replaceAll('_', ' ')} ${value}`));
}

/* The colour of the dot before the sentence: green only where the node trains and all is well. */
function moodOf({ state, worker, join, warnings }) {
  if (state === 'worker_failed') return 'bad';
  if (warnings.length) return 'warn';
  return !join && (worker.state === 'running' || worker.state === 'finished') ? 'good' : '';
}

function drawEvents(events) {
  at('event-rows').replaceChildren(...events.map((event) => element('li', { class: event.warning ? 'warning' : '' },
    element('time', {}, duration(event.age_s)), element('p', {}, element('b', {}, event.name.replaceAll('_', ' ')), ' ', ...typed(sentence(event))))));
}

/* ---- the page ---- */

const last = { status: null, peers: null, past: null };

function draw() {
  const { status, peers, past } = last;
  if (status === null || document.hidden) return;
  performance.mark('draw-begin');
  const { node, run } = status;
  /* Read before anything is written, so that the browser lays the page out once. */
  const [plot, map, strip] = ['loss-plot', 'map', 'rounds'].map((id) => Math.max(200, at(id).clientWidth - (id === 'rounds' ? 36 : 0)));
  const colours = palette();
  document.title = `${run.name} · ${node.name} · thinwire`;
  say('run', run.name);
  sayTyped('sentence', `${status.sentence}.`);
  at('sentence').dataset.mood = moodOf(status);
  drawWarnings(status.warnings);
  drawTiles(status);
  drawSample(status);
  drawLine(status);
  drawMachine(status);
  drawEvents(status.events);
  drawPeers(peers.peers);
  drawMap(peers.peers, node.name, map);
  say('foot', `thinwire ${node.version} · node ${node.id_short} · lineage ${run.lineage_short ?? '–'}`);
  const isAll = past !== null && !last.isDrawn;
  if (isAll) {
    drawLosses(past.losses, plot);
    drawRounds(past.rounds, strip, colours);
    last.isDrawn = true;
  }
  performance.measure(isAll ? 'draw-all' : 'draw', 'draw-begin');
}

function lock(why) {
  at('content').hidden = true;
  at('locked').hidden = false;
  say('locked-why', why);
  sayTyped('sentence', 'Not connected.');
  at('sentence').dataset.mood = '';
  say('fresh', '');
}

let asked_ms = -HISTORY_EVERY_MS, timer = 0, isAsking = false;

async function refresh() {
  clearTimeout(timer);
  if (isAsking) return;
  isAsking = true;
  try {
    const isDue = performance.now() - asked_ms >= HISTORY_EVERY_MS;
    const [status, peers, past] = await Promise.all([ask('v1/status'), ask('v1/peers'), isDue ? ask('v1/history') : null]);
    last.status = status;
    last.peers = peers;
    if (past !== null) { last.past = past; last.isDrawn = false; asked_ms = performance.now(); }
    at('locked').hidden = true;
    at('content').hidden = false;
    draw();
    say('fresh', `Live · ${new Date().toLocaleTimeString()}`);
    at('fresh').dataset.mood = '';
  } catch (error) {
    if (error instanceof Locked) { lock(error.message); isAsking = false; return; }
    say('fresh', 'The node does not answer; trying again');
    at('fresh').dataset.mood = 'bad';
  }
  isAsking = false;
  if (!document.hidden) timer = setTimeout(refresh, EVERY_MS);
}

let width = window.innerWidth;
function redraw() { last.isDrawn = false; draw(); }
addEventListener('resize', () => {
  if (window.innerWidth === width) return; // a phone's address bar came or went
  width = window.innerWidth;
  requestAnimationFrame(redraw);
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
addEventListener('hashchange', () => { if (takeToken()) refresh(); });
document.addEventListener('visibilitychange', () => { if (!document.hidden) refresh(); });
takeToken();
refresh();
