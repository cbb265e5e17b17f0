// The figures over time: of this server and, next to it, of a saved file or of
// a server of another job.
const RANGES = [['900', '15 minutes'], ['3600', '1 hour'], ['21600', '6 hours'], ['86400', '24 hours']];
const DAY = 86400;
const MOST_BYTES = 4 << 20;  // limit of a file to compare with
let ours = null;
let theirs = null;
let live = null;  // of a server to compare with: address, error

// A function of two consecutive points: the growth of a column, per second or
// per the growth of others. null: unknown.
function growth(a, b, name) {
  const by = a[name] === null || b[name] === null ? null : b[name] - a[name];
  return by === null || by < 0 ? null : by;  // it falls when a server restarts
}
const rate = (name, per) => (a, b) => {
  const by = growth(a, b, name);
  return by === null ? null : by / (b.seconds - a.seconds) * per;
};
const value = name => (a, b) => b[name];
const spread = name => (a, b) => b[name] > 0 ? b[name] : null;  // 0: no load
function waiting(a, b) {
  const wait = growth(a, b, 'wait_seconds'), train = growth(a, b, 'train_seconds');
  return wait === null || train === null || wait + train === 0 ? null : 100 * wait / (wait + train);
}
const CHARTS = [
  ['steps a minute', rate('step', 60), count],
  ['images a second', rate('images', 1), count],
  ['tokens a second', rate('tokens', 1), count],
  ['sent a second', rate('sent_bytes', 1), bytes],
  ['time that ranks wait', waiting, v => finite(v).toFixed(1) + ' %'],
  ['blocks in memory', value('memory_bytes'), bytes],
  ['vision: heaviest over mean', spread('spread_vision'), ratio],
  ['language: heaviest over mean', spread('spread_language'), ratio],
  ['workers busy', value('workers_busy'), count],
];

// Parses an answer of the server, or a file that may be anything.
function history_of(json) {
  const fits = json && json.ballast_history === 1 && Array.isArray(json.columns) && Array.isArray(json.points) &&
    json.columns.includes('seconds') && Number.isFinite(json.start);
  if (!fits) throw new Error('this is no history that a page of Ballast has saved');
  const points = json.points.map(row => Object.fromEntries(
    json.columns.map((name, i) => [name, Number.isFinite(row[i]) ? row[i] : null])));
  return {name: String(json.server), start: json.start, points: points.filter(p => p.seconds !== null)};
}

// The place of a point on the time axis. Time is counted from each server's
// start if two are compared.
function place(past, p) {
  if ($('axis').value === 'step') return p.step;
  return theirs ? p.seconds - past.start : p.seconds;
}

// The lines of a chart: [[x, y]...] without the gaps.
function lines(past, of) {
  const parts = [[]];
  for (let i = 1; i < past.points.length; ++i) {
    const b = past.points[i], y = of(past.points[i - 1], b), x = place(past, b);
    if (y === null || x === null) parts.push([]);
    else parts[parts.length - 1].push([x, y]);
  }
  return parts.filter(part => part.length);
}

function at(x) {
  if ($('axis').value === 'step') return 'step ' + Math.round(x).toLocaleString('en');
  if (theirs) return time(x);
  return new Date(x * 1000).toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});
}

function chart([heading, of, unit], from, to) {
  const W = 340, H = 130, L = 4, T = 8, B = 20;
  const own = lines(ours, of), other = theirs ? lines(theirs, of) : [];
  const all = [...own, ...other].flat();
  if (!all.length) return null;
  const low = unit === ratio ? 1 : 0;
  const top = Math.max(...all.map(p => p[1]), low + 1e-9);
  const x = v => L + (W - 2 * L) * (to > from ? (v - from) / (to - from) : 0.5);
  const y = v => T + (H - B - T) * (1 - (v - low) / (top - low));
  const svg = draw('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': heading + ' over time'});
  for (const v of [low, top]) svg.append(draw('line', {class: 'grid', x1: 0, x2: W, y1: y(v), y2: y(v)}));
  for (const [kind, parts] of [['b', other], ['a', own]]) {
    for (const part of parts) {
      svg.append(part.length === 1
        ? draw('circle', {class: kind === 'a' ? 'after' : 'before', cx: x(part[0][0]), cy: y(part[0][1]), r: 2})
        : draw('polyline', {class: 'spread ' + kind, points: part.map(p => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(' ')}));
    }
  }
  svg.append(draw('text', {x: 0, y: H - 4}, at(from)), draw('text', {x: W, y: H - 4, 'text-anchor': 'end'}, to > from ? at(to) : ''));
  const now = parts => parts.length ? unit(parts[parts.length - 1].slice(-1)[0][1]) : '–';
  return el('figure', {},
    el('figcaption', {}, heading + ' ', el('b', {}, now(own)), theirs ? [' beside ', now(other)].join('') : '', el('span', {}, 'up to ' + unit(top))), svg);
}

// The name of the other history: of its server, and the address that was
// called.
function shown(past) {
  const name = past.name.slice(0, 80);
  if (!live) return name + ', saved';
  return live.address === past.name ? name : `${name} at ${live.address}`;
}

function charts() {
  if (!ours) return;
  // One axis for all charts.
  const xs = [ours, theirs].filter(Boolean).flatMap(past => past.points.slice(1).map(p => place(past, p))).filter(x => x !== null);
  const from = Math.min(...xs), to = Math.max(...xs);
  $('charts').replaceChildren(...CHARTS.map(one => chart(one, from, to)).filter(Boolean));
  $('alone').hidden = !theirs || live;  // the select `beside` removes a server
  $('beside').replaceChildren(...(theirs
    ? [el('i', {class: 'key after'}), ours.name, el('i', {class: 'key before'}), `${shown(theirs)}; time is counted from the start of each server`]
    : $('charts').children.length ? [] : ['The first points come within ten seconds.']));
  if (live && live.error) $('beside').append(el('span', {class: 'warn'}, `${theirs ? `; drawn as of ${time(live.age)} ago, since ` : ''}${live.address} gives no figures: ${live.error}`));
  $('past').hidden = false;
}

async function ask(path) {
  const answer = await fetch(path, {headers: token ? {Authorization: 'Bearer ' + token} : {}, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE)});
  if (!answer.ok) throw new Error('status ' + answer.status);
  return answer.json();
}
const recent = seconds => ask('api/history?seconds=' + seconds);

// Fetches the other history if it is of a server of serve.compare_with. `null`:
// nothing has been chosen yet, and the first server is.
let chosen = null;
async function compare() {
  if (chosen === '') return;
  const wanted = chosen;
  const other = await ask(`api/compared?seconds=${$('range').value}&server=${wanted || 0}`);
  if (chosen !== wanted) return;  // another was chosen meanwhile
  if (chosen === null) {
    $('others').hidden = !other.addresses.length;
    $('other').replaceChildren(el('option', {value: ''}, 'nothing'), ...other.addresses.map((address, i) => el('option', {value: i}, address)));
    choose(other.addresses.length ? '0' : '');
    if (chosen === '') return;
  }
  live = {address: other.addresses[chosen], age: other.age, error: other.error};
  theirs = null;
  try {
    if (other.history) theirs = history_of(other.history);
  } catch (error) {
    live.error = error.message;
  }
}
function choose(other) {
  chosen = $('other').value = other;
  if (other === '') live = null;
}
async function follow() {
  if (document.hidden) return;
  try {
    ours = history_of(await recent($('range').value));
    charts();
    // Last: a server that is silent must not delay this one's charts.
    await compare();
    if (live) charts();
  } catch (error) {
    // The head of the page says that the server is away.
  }
}

$('range').replaceChildren(...RANGES.map(([seconds, name]) => el('option', {value: seconds}, name)));
$('range').value = '3600';
$('range').addEventListener('change', follow);
$('axis').addEventListener('change', charts);
$('save').addEventListener('click', async () => {
  try {
    const json = await recent(DAY);
    const link = el('a', {href: URL.createObjectURL(new Blob([JSON.stringify(json)], {type: 'application/json'})),
      download: `ballast-${json.server.replace(/[^\w.-]+/g, '_')}.json`});
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    $('beside').textContent = 'Not saved: ' + error.message;
  }
});
$('compare').addEventListener('change', async event => {
  const [file] = event.target.files;
  try {
    if (file.size > MOST_BYTES) throw new Error('it has more than 4 MiB');
    const saved = history_of(JSON.parse(await file.text()));
    choose('');
    theirs = saved;
    charts();
  } catch (error) {
    $('beside').textContent = `${file.name}: ${error.message}`;
  }
  event.target.value = '';
});
$('alone').addEventListener('click', () => { choose(''); theirs = null; charts(); });
$('other').addEventListener('change', () => {
  choose($('other').value);
  theirs = null;
  charts();
  follow();
});
document.addEventListener('visibilitychange', follow);
document.forms[0].addEventListener('submit', follow);
setInterval(follow, 5000);
follow();
