'use strict';
// Everything that comes from the server is shown as text, never as markup.
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) node.setAttribute(k, v);
  node.append(...children.filter(c => c !== null && c !== undefined).map(c => c instanceof Node ? c : String(c)));
  return node;
}
function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attributes || {})) node.setAttribute(k, v);
  node.append(...children);
  return node;
}
const finite = x => Number.isFinite(x) ? x : 0;
function scaled(x, base, units) {
  let i = 0;
  for (x = finite(x); Math.abs(x) >= base && i < units.length - 1; ++i) x /= base;
  return (Math.abs(x) >= 100 || x === 0 || (i === 0 && Number.isInteger(x)) ? x.toFixed(0) : x.toFixed(Math.abs(x) >= 10 ? 1 : 2)) + units[i];
}
const count = x => scaled(x, 1000, ['', ' k', ' M', ' G', ' T', ' P']);
const bytes = x => scaled(x, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']);
function time(s) {
  s = finite(s);
  if (s === 0) return '0';
  if (s < 1e-3) return (s * 1e6).toFixed(0) + ' µs';
  if (s < 1) return (s * 1e3).toFixed(s < 0.1 ? 1 : 0) + ' ms';
  if (s < 120) return s.toFixed(1) + ' s';
  return s < 7200 ? (s / 60).toFixed(0) + ' min' : (s / 3600).toFixed(1) + ' h';
}
const ratio = x => finite(x) === 0 ? '–' : finite(x).toFixed(3);
const title = s => s.charAt(0).toUpperCase() + s.slice(1);

let token = '';  // in memory only
let last = null;
let busy = false;
const PATIENCE = 10000;  // ms until a server that is silent counts as gone

function rates(now) {
  const seconds = last ? (now.at - last.at) / 1000 : 0;
  return name => {
    const a = last && last.json.numbers[name], b = now.json.numbers[name];
    return seconds > 0 && a !== undefined && b >= a ? (b - a) / seconds : 0;
  };
}

function tiles(json, rate) {
  const n = json.numbers;
  const frames = rate('ballast_video_frames_total use=vision') + rate('ballast_video_frames_total use=check');
  const videos = finite(n['ballast_videos_total use=vision']) + finite(n['ballast_videos_total use=check']);
  // Decoders that ended on their own or by a fault: others were stopped.
  const ended = ['crash', 'processor_time', 'silence', 'answer', 'killed', 'libraries']
    .map(why => [why.replace('_', ' '), finite(n['ballast_video_decoder_ends_total reason=' + why])]).filter(e => e[1] > 0);
  const encoded = rate('ballast_images_total use=encoded');
  const images = rate('ballast_images_total use=vision') + encoded;
  const sent = rate('ballast_sent_bytes_total way=shared_memory') + rate('ballast_sent_bytes_total way=stream');
  const full = json.memory.limit ? json.memory.in_use / json.memory.limit : 0;
  const items = [
    [json.step === null ? '–' : json.step.toLocaleString('en'), 'step' + changes(json)],
    ...(json.balance ? [[count(json.balance.tokens), 'tokens in step ' + json.balance.step.toLocaleString('en') +
      (json.balance.pack_room ? ', packs ' + (100 * json.balance.tokens / json.balance.pack_room).toFixed(1) + ' % full' : '')]] : []),
    [count(images), 'images a second' + (encoded ? ', ' + count(encoded) + ' sent encoded' : '')],
    ...(n.ballast_video_decoder_starts_total > 0 ? [
      [count(frames), 'frames a second, of ' + count(videos) + ' videos so far'],
      [ended.reduce((sum, e) => sum + e[1], 0), ended.length ? 'video decoders ended: ' + ended.map(e => `${e[1]} ${e[0]}`).join(', ') : 'video decoders ended by a fault', ended.length ? 'warn' : ''],
    ] : []),
    [bytes(sent) + '/s', 'to clients'],
    [count(finite(n.ballast_samples_waiting)), 'samples waiting, ' + finite(n.ballast_workers_busy) + ' of ' + finite(n.ballast_workers) + ' workers busy'],
    [bytes(json.memory.in_use), 'of ' + bytes(json.memory.limit) + ' in blocks', full > 0.95 ? 'warn' : ''],
    ...(left_out(json).length ? [[count(left_out(json).reduce((sum, s) => sum + s.bad, 0)), 'records left out by the index', 'bad']] : []),
    [json.bad_samples_total, 'bad samples of at most ' + json.max_bad_samples, json.bad_samples_total ? 'bad' : ''],
  ];
  $('tiles').replaceChildren(...items.map(([value, label, tone]) =>
    el('div', {class: 'tile'}, el('b', {class: tone || ''}, value), el('span', {}, label))));
  $('tiles').hidden = false;
  place_tiles();
}
// Rows of as many tiles each as can be; the last tile of a shorter row fills it.
function place_tiles() {
  const all = $('tiles').children, most = innerWidth <= 460 ? 2 : innerWidth <= 800 ? 4 : 8;
  const columns = Math.ceil(all.length / Math.ceil(all.length / most)) || 1;
  $('tiles').style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  if (all.length) all[all.length - 1].style.gridColumn = 'span ' + (columns - (all.length - 1) % columns);
}
addEventListener('resize', place_tiles);

// A round step of an axis, of at most four up to `top`.
function nice(top) {
  const power = 10 ** Math.floor(Math.log10(top / 3));
  return power * [1, 2, 5, 10].find(k => k * power * 4 >= top);
}

function bars(module) {
  const W = 520, H = 170, L = 52, B = 22, n = Math.max(module.after.length, 1);
  const top = Math.max(...module.before, ...module.after, 1e-300);
  const y = v => (H - B) * (1 - finite(v) / top / 1.06);
  // Many ranks: draws a line before the bars, since two bars per rank would be too thin.
  const many = n > 64;
  const step = (W - L) / n, gap = many ? 0 : step * 0.22, width = many ? step : (step - gap) / 2;
  const mean = module.after.reduce((a, b) => a + b, 0) / n;
  // Labels as many ranks as there is room for, also if the text is larger (phones).
  const room = 11 * String(module.ranks - 1).length + 10;
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256].find(k => k * step >= room) || n;
  const svg = draw('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img',
    'aria-label': `load per ${module.module} rank before and after balancing`});
  const tick = nice(top);
  for (let v = 0; v <= top * 1.001; v += tick) {
    svg.append(draw('line', {class: 'grid', x1: L, x2: W, y1: y(v), y2: y(v)}));
    svg.append(draw('text', {x: L - 6, y: Math.max(y(v) + 4, 10), 'text-anchor': 'end'}, count(v)));
  }
  for (let i = 0; i < n; ++i) {
    const x = L + i * step + gap / 2;
    const first = i * module.ranks_a_bar;
    const which = module.ranks_a_bar > 1 ? `ranks ${first} to ${Math.min(first + module.ranks_a_bar, module.ranks) - 1} (largest)` : `rank ${first}`;
    for (const [kind, values, at] of [['before', module.before, x], ['after', module.after, many ? x : x + width]]) {
      if (many && kind === 'before') continue;
      const v = finite(values[i]);
      svg.append(draw('rect', {class: kind, x: at, y: y(v), width, height: Math.max(H - B - y(v), 0), rx: width > 5 ? 1.5 : 0},
        draw('title', {}, `${which}: before ${count(module.before[i])}, after ${count(module.after[i])}`)));
    }
    if (i % every === 0) {
      svg.append(draw('text', {x: x + (many ? width / 2 : width), y: H - 4, 'text-anchor': 'middle'}, String(first)));
    }
  }
  if (many) {
    const line = module.before.map((v, i) => `${(L + i * step).toFixed(1)},${y(v).toFixed(1)} ${(L + (i + 1) * step).toFixed(1)},${y(v).toFixed(1)}`);
    svg.append(draw('polyline', {class: 'spread b thin', points: line.join(' ')}));
  }
  svg.append(draw('line', {class: 'mean', x1: L, x2: W, y1: y(mean), y2: y(mean)}));
  return svg;
}

// What `step` says of the changes of the running job (docs/changes.md).
function changes(json) {
  const steps = json.change_steps || [], at = json.step === null ? 0 : json.step;
  const begun = steps.filter(s => s <= at).length, next = steps[begun];
  return (begun === 0 ? '' : `, change ${begun} of ${steps.length} from step ` + steps[begun - 1].toLocaleString('en') + ' on') +
    (next === undefined ? '' : `, change ${begun + 1} at step ` + next.toLocaleString('en'));
}

function history(steps, name) {
  const W = 520, H = 170, L = 46, B = 22;
  const points = steps.map(s => [s.step, s.modules.find(m => m.module === name)]).filter(p => p[1] && p[1].spread_before > 0);
  const svg = draw('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `spread of ${name} over the last steps`});
  const top = Math.max(1.1, ...points.map(p => Math.max(p[1].spread_before, p[1].spread_after))) - 1;
  const y = v => (H - B) * (1 - (v - 1) / top / 1.06);
  const from = points.length ? points[0][0] : 0, to = points.length ? points[points.length - 1][0] : 1;
  const x = s => L + (W - L) * (to > from ? (s - from) / (to - from) : 0.5);
  for (const f of [0, 0.5, 1]) {
    const v = 1 + top * f;
    svg.append(draw('line', {class: 'grid', x1: L, x2: W, y1: y(v), y2: y(v)}));
    svg.append(draw('text', {x: L - 6, y: y(v) + 4, 'text-anchor': 'end'}, v.toFixed(2)));
  }
  for (const [kind, key] of [['b', 'spread_before'], ['a', 'spread_after']]) {
    const at = points.map(p => `${x(p[0]).toFixed(1)},${y(p[1][key]).toFixed(1)}`);
    if (at.length === 1) {
      const [cx, cy] = at[0].split(',');
      svg.append(draw('circle', {class: kind === 'a' ? 'after' : 'before', cx, cy, r: 3}));
    }
    svg.append(draw('polyline', {class: 'spread ' + kind, points: at.join(' ')}));
  }
  svg.append(draw('text', {x: L, y: H - 4}, points.length ? 'step ' + from : ''));
  svg.append(draw('text', {x: W, y: H - 4, 'text-anchor': 'end'}, points.length > 1 ? 'step ' + to : ''));
  return svg;
}

// The unit of loads: costs of a model are GFLOP, stated coefficients have the user's.
function unit(json) {
  return (json.costs || '').startsWith('as of ') ? 'GFLOP' : 'cost';
}

// All modules of each rank in the current step, or null: modules with other numbers of ranks,
// or of so many that a bar is the largest load of several.
function together(balance) {
  const all = balance ? balance.modules.filter(m => m.spread_before > 0) : [];
  if (all.length < 2 || all.some(m => m.ranks !== all[0].ranks || m.ranks_a_bar > 1)) return null;
  const sum = key => all[0][key].map((_, i) => all.reduce((s, m) => s + finite(m[key][i]), 0));
  return {module: 'all modules', ranks: all[0].ranks, ranks_a_bar: 1, before: sum('before'), after: sum('after')};
}

function modules(json) {
  const parts = [], all = together(json.balance);
  if (all) {
    parts.push(el('section', {class: 'half'},
      el('h2', {}, 'All modules: load of each rank in step ' + json.balance.step.toLocaleString('en')), bars(all)),
      el('section', {class: 'half'}, el('h2', {}, 'All modules: heaviest rank over mean'),
        el('p', {class: 'large'}, el('b', {}, ratio(json.balance.spread_before)), ' as read, ',
          el('b', {}, ratio(json.balance.spread_after)), ' as trained'),
        el('p', {class: 'facts'}, 'A rank’s modules together are what is balanced; a module alone need not be even.')));
  }
  for (const m of json.balance ? json.balance.modules : []) {
    const even = m.spread_after > 0 ? m.spread_before / m.spread_after : 1;
    const moved = m.within_servers.bytes + m.between_servers.bytes;
    if (!(m.spread_before > 0)) {
      parts.push(el('section', {}, el('h2', {}, title(m.module)), el('p', {class: 'facts'},
        'No load in this step. Its samples follow the other module: ',
        el('b', {}, bytes(moved)), ' of ', bytes(m.bytes), ' moved.')));
      continue;
    }
    const share = m.bytes ? (100 * moved / m.bytes).toFixed(0) : '0';
    parts.push(el('section', {class: 'half'},
      el('h2', {}, title(m.module) + ': load of each rank in step ' + json.balance.step.toLocaleString('en')),
      bars(m),
      el('p', {class: 'facts'},
        el('span', {}, `${unit(json)} of each rank `), el('i', {class: 'key before'}), 'as read', el('i', {class: 'key after'}), 'as trained',
        m.ranks_a_bar > 1 ? `, ${m.ranks_a_bar} ranks a bar` : ''),
      el('p', {class: 'facts'}, 'moved ', el('b', {}, bytes(m.within_servers.bytes)), ' within servers, ',
        el('b', {}, bytes(m.between_servers.bytes)), ' between, of ', bytes(m.bytes), ` (${share} %); `,
        m.within_servers.samples + m.between_servers.samples, ' of ', m.samples, ' samples')));
    parts.push(el('section', {class: 'half'},
      el('h2', {}, title(m.module) + ': heaviest rank over mean'),
      history(json.history, m.module),
      el('p', {class: 'facts'}, el('i', {class: 'key before'}), 'as read ', el('b', {}, ratio(m.spread_before)),
        el('i', {class: 'key after'}), 'as trained ', el('b', {}, ratio(m.spread_after))),
      el('p', {class: 'facts'}, even > 1.0005 ? ['balancing makes the heaviest rank ', el('b', {}, even.toFixed(2) + ' times'), ' lighter'].reduce((p, c) => (p.append(c), p), el('span')) : all ? 'evened out together with the other modules' : 'nothing to gain in this step')));
  }
  if (parts.length && json.costs) parts.push(el('section', {}, el('p', {class: 'facts'}, 'Costs of samples: ' + json.costs + '.')));
  if (!parts.length) {
    parts.push(el('section', {}, el('h2', {}, 'Balance'), el('p', {class: 'facts'}, 'No rank has taken a block yet.')));
  }
  $('modules').replaceChildren(...parts);
}

function table(head, rows, left) {
  return el('div', {class: 'scroll'}, el('table', {},
    el('thead', {}, el('tr', {}, ...head.map((h, i) => el('th', {class: (left || []).includes(i) ? 'left' : ''}, h)))),
    el('tbody', {}, ...rows.map(r => el('tr', {}, ...r.map((c, i) => {
      const cell = c instanceof Node ? c : el('td', {class: (left || []).includes(i) ? 'left' : ''}, c);
      cell.setAttribute('data-head', head[i]);
      return cell;
    }))))));
}

// Replaces the children of an element, and keeps its scroll position.
function fill(id, ...children) {
  const old = $(id).querySelector('.scroll');
  const [left, top] = old ? [old.scrollLeft, old.scrollTop] : [0, 0];
  $(id).replaceChildren(...children);
  const now = $(id).querySelector('.scroll');
  if (now) now.scrollTo({left, top, behavior: 'instant'});
}

const NAMES = {
  'ballast_stage_seconds stage=read_images': ['read images', 'stages'],
  'ballast_stage_seconds stage=decode': ['decode', 'stages'],
  'ballast_stage_seconds stage=resize': ['resize', 'stages'],
  'ballast_stage_seconds stage=decode_video': ['decode a video', 'stages'],
  'ballast_stage_seconds stage=read_text': ['read text', 'stages'],
  'ballast_stage_seconds stage=tokenise': ['tokenise', 'stages'],
  'ballast_block_wait_seconds': ['wait for a block', 'flow'],
  'ballast_block_hold_back_seconds': ['wait for room', 'flow'],
  'ballast_block_send_seconds': ['send', 'flow'],
};
function times(json) {
  const rows = {stages: [], flow: []};
  const before = new Map((last ? last.json.times : []).map(t => [t.name, t]));
  for (const t of json.times) {
    let [label, where] = NAMES[t.name] || [null, null];
    if (t.name.startsWith('ballast_rank_seconds')) {
      label = t.name.replace(/^\S+ /, '').replace(/\w+=/g, '');
      where = 'flow';
    }
    if (!label || (t.name.endsWith('decode_video') && !t.count)) continue;
    const old = before.get(t.name);
    const fresh = old && t.count > old.count ? (t.sum - old.sum) / (t.count - old.count) : null;
    const some = s => t.count ? time(s) : '–';
    rows[where].push([label, count(t.count), fresh === null ? '–' : time(fresh), some(t.p50), some(t.p99)]);
  }
  for (const [id, heading] of [['stages', 'Time of the stages'], ['flow', 'Time of blocks and ranks']]) {
    $(id).hidden = false;
    fill(id, el('h2', {}, heading), table(['', 'count', 'mean now', 'median', '99 %'], rows[id]));
  }
}

// The port of `ballast-server preview` on the reader's machine, in the page's own
// address: #preview=8123. Samples then link to it.
function previewed(place, text) {
  const port = /^#preview=(\d{1,5})$/.exec(location.hash);
  if (!port) return text;
  const url = new URL(location.href);
  url.protocol = 'http';
  url.hostname = '127.0.0.1';
  url.port = port[1];
  url.hash = place;
  return el('a', {href: url.href, target: '_blank', rel: 'noopener'}, text);
}
function preview_hint() {
  return el('p', {class: 'facts'}, previewed('', '') instanceof Node
    ? 'Samples and steps link to the preview.'
    : 'To look at a sample, run ballast-server preview --config F --port P and open this page with #preview=P.');
}

function clients(json) {
  const states = {waits_for_block: 'waits for a block', sending: 'receives a block', holds_back: 'has no room for more'};
  fill('clients', el('h2', {}, `Clients (${json.clients_total})`),
    json.clients.length ? table(['rank', 'step, micro-batch', 'steps behind', 'state', 'for', 'holds', 'way', 'connection'],
      json.clients.map(c => [`${c.split === 'train' ? '' : c.split + ' '}${c.module} ${c.rank}`, el('td', {}, previewed(`${c.split}/${c.module}/${c.rank}/${c.step}.${c.micro_batch}`, `${c.step.toLocaleString('en')}, ${c.micro_batch}`)),
        el('td', {class: c.lag > 4 ? 'warn' : ''}, c.lag), states[c.state] || c.state, time(c.seconds),
        bytes(c.held_bytes), c.shared_memory ? 'shared memory' : 'stream', c.peer]), [3, 6, 7])
      : el('p', {class: 'facts'}, 'No rank is connected.'),
    json.clients.length < json.clients_total ? el('p', {class: 'facts'}, `Shown are the ${json.clients.length} furthest behind.`) : '',
    json.clients.length ? preview_hint() : '');
  $('clients').hidden = false;
}

// Absent from an older server.
function left_out(json) {
  return json.left_out || [];
}

function problems(json) {
  $('problems').hidden = !json.problems.length;
  fill('problems', el('h2', {class: 'bad'}, 'Problems'),
    table(['kind', 'of', 'for', 'what'], json.problems.map(p =>
      [p.kind.replaceAll('_', ' '), el('td', {class: 'wide'}, p.subject), time(p.seconds), el('td', {class: 'wide'}, p.text)]), [1, 3]));
  $('stalls').hidden = !json.stalls.length;
  fill('stalls', el('h2', {class: 'bad'}, 'Held up'),
    table(['stage', 'for', 'sample', 'file'], json.stalls.map(s =>
      [s.stage, time(s.seconds), el('td', {class: 'left'}, s.sample ? previewed(s.sample, s.sample) : ''), el('td', {class: 'wide'}, s.file ? `${s.file} at byte ${s.offset}` : '')]), [2, 3]));
  $('left_out').hidden = !left_out(json).length;
  fill('left_out', el('h2', {}, 'Left out by the index as bad'),
    table(['source', 'records', 'of', 'causes'], left_out(json).map(s =>
      [s.source, s.bad, s.samples + s.bad, el('td', {class: 'wide'}, s.causes.map(c => `${c.records} ${c.cause}, as ${c.example}`).join('; '))]), [0, 3]));
  $('bad').hidden = !json.bad_samples.length;
  fill('bad', el('h2', {}, `Bad samples (${json.bad_samples_total} of at most ${json.max_bad_samples})`),
    table(['sample', 'times', 'reason', 'where'], json.bad_samples.map(b =>
      [el('td', {}, previewed(b.sample.split(' ')[0], b.sample)), b.count, el('td', {class: 'wide'}, b.reason), el('td', {class: 'wide'}, `${b.file} at byte ${b.offset}`)]), [2, 3]), preview_hint());
}

function show(json) {
  const now = {at: performance.now(), json};
  $('server').textContent = `${json.server}, up ${time(json.uptime_seconds)}`;
  tiles(json, rates(now));
  modules(json);
  times(json);
  clients(json);
  problems(json);
  last = now;
}

// Marks the page as showing the last answer, which is out of date.
function away(why) {
  $('live').textContent = why;
  $('live').className = 'off';
  document.body.className = last ? 'old' : '';
}

async function refresh() {
  if (busy || document.hidden) return;
  busy = true;
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), PATIENCE);
  try {
    const answer = await fetch('api/status', {headers: token ? {Authorization: 'Bearer ' + token} : {}, cache: 'no-store', signal: stop.signal});
    if (answer.status === 401 || answer.status === 403) {
      $('why').textContent = token ? await answer.text() : '';
      $('ask').hidden = false;
      away('wants a token');
      return;
    }
    if (!answer.ok) throw new Error('status ' + answer.status);
    show(await answer.json());
    $('ask').hidden = true;
    $('live').textContent = 'live';
    $('live').className = '';
    document.body.className = '';
  } catch (error) {
    const why = stop.signal.aborted ? '' : error instanceof TypeError ? '' : ` (${error.message})`;
    away(last ? `no answer for ${time((performance.now() - last.at) / 1000)}${why}` : 'no answer' + why);
  } finally {
    clearTimeout(timer);
    busy = false;
  }
}
document.forms[0].addEventListener('submit', event => {
  event.preventDefault();
  token = event.target.querySelector('input').value.trim();
  event.target.reset();
  refresh();
});
document.addEventListener('visibilitychange', refresh);
setInterval(refresh, 2000);
refresh();
