'use strict';
// Everything that comes from the server is shown as text, never as markup.
const $ = id => document.getElementById(id);
const SVG = 'http://www.w3.org/2000/svg';
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) node.setAttribute(k, v);
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}
function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attributes)) node.setAttribute(k, v);
  node.append(...children);
  return node;
}
const grouped = n => n.toLocaleString('en');
function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return (i === 0 ? n : n.toFixed(1)) + ' ' + units[i];
}

let job = null;
let shown = null;    // the hash that is on the page, or on its way to it
let position = 0n;   // positions exceed what a number holds exactly

const query = values => new URLSearchParams(values).toString();
async function ask(path, values) {
  const answer = await fetch(path + '?' + query(values));
  const json = await answer.json();
  if (!answer.ok) throw new Error(json.error || answer.statusText);
  return json;
}
function fail(text) {
  $('fault').textContent = text;
  $('fault').hidden = false;
}
const splitOf = name => job.splits.find(s => s.name === name) || job.splits[0];
// Random samples come from the first pass through the split.
function samplesOf(split) {
  if (split.positions !== null) return split.positions;
  return split.sources.reduce((sum, source) => sum + source.samples, 0);
}

function fact(value, label, wide) {
  return el('div', wide ? {class: 'wide'} : {}, el('b', {}, String(value)), el('span', {}, label));
}
function showFacts(view) {
  const share = view.tokens ? Math.round(100 * view.label_tokens / view.tokens) : 0;
  $('facts').replaceChildren(
    fact(grouped(view.position), 'position'),
    fact(grouped(view.step), 'step, micro-batch ' + view.micro_batch),
    fact(grouped(view.tokens), 'tokens'),
    fact(grouped(view.label_tokens), `tokens that the loss counts (${share} %)`),
    fact(grouped(view.patches), 'patches of ' + view.crops.length + (view.crops.length === 1 ? ' crop' : ' crops')),
    ...view.modules.map(m => fact(grouped(Math.round(m.cost)),
      `${m.module} cost, rank ${m.reader} reads it, rank ${m.owner} trains on it`)),
    fact(`${view.source}:${view.ordinal}`, 'source and number of the sample: ' +
      [view.name, view.file && `${view.file} at byte ${grouped(view.offset)}`].filter(Boolean).join(', '), true));
  $('facts').hidden = false;
}

function patchGrid(crop) {
  const svg = draw('svg', {viewBox: `0 0 ${crop.width} ${crop.height}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
  for (let i = 1; i < crop.grid_w; ++i) {
    const x = crop.width * i / crop.grid_w;
    svg.append(draw('line', {x1: x, x2: x, y1: 0, y2: crop.height}));
  }
  for (let i = 1; i < crop.grid_h; ++i) {
    const y = crop.height * i / crop.grid_h;
    svg.append(draw('line', {x1: 0, x2: crop.width, y1: y, y2: y}));
  }
  return svg;
}
// What each kind of media is: as stored, and as an encoder takes it.
const kinds = {
  image: {
    stored: image => `${image.width} × ${image.height} px, ${image.format.toUpperCase()}, ${bytes(image.bytes)} `,
    taken: crop => `${crop.width} × ${crop.height} px, ${crop.grid_w} × ${crop.grid_h} patches`,
    links: (place, i) => [
      el('a', {href: '/api/image?' + query({...place, image: i}), target: '_blank', rel: 'noopener'}, 'open'), ' ',
      el('a', {href: '/api/crops?' + query({...place, image: i}), target: '_blank', rel: 'noopener'}, 'with its crops')],
  },
  video: {
    stored: video => `${video.width} × ${video.height} px, ${grouped(video.frames)} frames, ${video.rate.toFixed(2)} a second, ${video.format}`,
    taken: crop => `video ${crop.video}, frame ${grouped(crop.frame)}, ${crop.seconds.toFixed(2)} s: ${kinds.image.taken(crop)}`,
    links: () => [],
  },
  audio: {
    stored: audio => `${(audio.frames / audio.rate).toFixed(2)} s, ${grouped(audio.rate)} samples a second, ${audio.format}`,
    taken: (crop, i) => `audio ${i}: ${grouped(crop.frames)} frames that count of ${grouped(crop.width)}, ${crop.height} mel bins`,
    links: (place, i) => [el('audio', {controls: '', preload: 'none', src: '/api/audio?' + query({...place, clip: i})})],
  },
};
// The number of each of a list among those of its kind.
function numbered(list) {
  const counts = {};
  return list.map(one => [one, counts[one.kind] = (counts[one.kind] ?? -1) + 1]);
}
function showPictures(view, place) {
  const crops = numbered(view.crops).map(([crop, i], at) => el('figure', {},
    el('div', {class: 'picture'},
      el('img', {src: '/api/crop?' + query({...place, crop: at}), alt: `${crop.kind} crop ${i}`, width: crop.width, height: crop.height}),
      crop.grid_w ? patchGrid(crop) : null),
    el('figcaption', {}, kinds[crop.kind].taken(crop, i))));
  const stored = numbered(view.media).map(([medium, i]) => el('figure', {}, el('figcaption', {},
    medium.fault ? `${medium.kind} ${i}, ${bytes(medium.bytes)}: ${medium.fault}`
      : `${medium.kind} ${i} as stored: ` + kinds[medium.kind].stored(medium),
    ...(medium.fault ? [] : kinds[medium.kind].links(place, i)))));
  $('crops').replaceChildren(...crops, ...stored);
  $('pictures').hidden = crops.length + stored.length === 0;
}
function showText(view) {
  let counts = {};
  const show = run => run.medium
    ? el('span', {class: 'image'}, `${run.medium} tokens ${counts[run.medium] = (counts[run.medium] ?? 0) + 1}: ` + grouped(run.tokens))
    : el('span', {class: run.supervised ? 'supervised' : '', title: `${grouped(run.tokens)} tokens from ${grouped(run.first)}`}, run.text);
  // The rejected sequence of a preference pair follows the chosen one, with the same images.
  const second = view.runs.findIndex(run => run.rejected);
  const spans = view.runs.map((run, i) => {
    if (i === second) counts = {};
    return show(run);
  });
  if (second > 0) {
    spans.splice(second, 0, el('hr', {}), el('b', {}, 'rejected\n'));
    spans.unshift(el('b', {}, 'chosen\n'));
  }
  $('text').replaceChildren(...spans);
  $('words').hidden = view.runs.length === 0;
}

// JSON with a line a key, other texts as they are.
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
// What a recipe was given, and what it made of it.
function showRecipe(view) {
  $('record').textContent = pretty(view.record);
  $('cooked').textContent = pretty(view.cooked);
  $('recipe').hidden = view.record === '';
}

// A list of samples above the one that is shown.
function showList(heading, links) {
  $('list').replaceChildren(el('h2', {}, heading), el('p', {class: 'links'}, ...links.flatMap(link => [link, ' '])));
  $('list').hidden = false;
}
const linkTo = (hash, text) => el('a', {href: hash}, text);

// Follows the addresses that a server's page links: #docs:17, a sample, and
// #train/vision/3/5.0, rank 3's micro-batch 0 of step 5. Returns whether it was
// one of these.
async function follow(hash) {
  const sample = /^#([\w-]+):(\d+)$/.exec(hash);
  const rank = /^#(\w+)\/(\w+)\/(\d+)\/(\d+)\.(\d+)$/.exec(hash);
  if (!sample && !rank) return false;
  shown = hash;
  document.body.classList.add('busy');
  try {
    if (sample) {
      const split = job.splits.find(s => s.sources.some(source => source.name === sample[1])) || job.splits[0];
      const found = await ask('/api/find', {split: split.name, source: sample[1], sample: sample[2]});
      location.replace(`#${split.name}/${found.position}`);
    } else {
      const [, split, module, number, step, micro_batch] = rank;
      const samples = await ask('/api/rank', {split, module, rank: number, step, micro_batch});
      const links = positions => positions.map(p => linkTo(`#${split}/${p}`, grouped(p)));
      showList(`${module} rank ${number}, step ${step}, micro-batch ${micro_batch}`,
        ['reads', ...links(samples.reads), 'trains on', ...links(samples.trains_on)]);
      location.replace(`#${split}/${samples.reads[0] ?? samples.trains_on[0] ?? 0}`);
    }
  } catch (error) {
    fail(error.message);
  }
  document.body.classList.remove('busy');
  return true;
}

async function search(name) {
  const found = await ask('/api/search', {split: $('split').value, name});
  const links = found.matches.map(m => linkTo(`#${m.source}:${m.sample}`, `${m.source}:${m.sample} ${m.name}`));
  showList(links.length ? `Samples whose name holds “${name}”`
    : `No name holds “${name}” among ${grouped(found.looked_at)} samples${found.complete ? '' : ', the first that could be read in 20 s'}`, links);
}

async function show() {
  const hash = location.hash;
  if (await browse(hash)) return;
  if (await follow(hash)) return;
  const [, name, number] = /^#(\w+)\/(\d+)$/.exec(hash) || [null, job.splits[0].name, '0'];
  const split = splitOf(name);
  shown = hash;
  position = BigInt(number);
  $('split').value = split.name;
  $('position').value = number;
  $('source').replaceChildren(...split.sources.map(s => el('option', {}, s.name)));
  document.body.classList.add('busy');
  const place = {split: split.name, position: number};
  try {
    const view = await ask('/api/sample', place);
    if (shown !== hash) return;  // another one was asked for meanwhile
    $('fault').hidden = true;
    if (view.fault) fail('This sample cannot be built: ' + view.fault);
    showFacts(view);
    showPictures(view, place);
    showText(view);
    showRecipe(view);
    document.title = `${view.source}:${view.ordinal} – Ballast preview`;
  } catch (error) {
    if (shown !== hash) return;
    fail(error.message);
    for (const id of ['facts', 'pictures', 'words', 'recipe']) $(id).hidden = true;
  }
  document.body.classList.remove('busy');
}
function go(to) {
  location.hash = `#${$('split').value}/${to}`;
}
const step = by => { if (position + by >= 0n) go(position + by); };
function random() {
  go(Math.floor(Math.random() * samplesOf(splitOf($('split').value))));
}

async function start() {
  try {
    job = await ask('/api/job', {});
  } catch (error) {
    fail(error.message);
    return;
  }
  $('model').textContent = job.model;
  $('split').replaceChildren(...job.splits.map(s => el('option', {}, s.name)));
  $('split').hidden = job.splits.length < 2;
  $('split').addEventListener('change', () => go(0));
  $('go').addEventListener('submit', event => { event.preventDefault(); go($('position').value.trim()); });
  $('previous').addEventListener('click', () => step(-1n));
  $('next').addEventListener('click', () => step(1n));
  $('random').addEventListener('click', random);
  $('grid').addEventListener('change', () => $('crops').classList.toggle('gridded', $('grid').checked));
  $('find').addEventListener('submit', async event => {
    event.preventDefault();
    try {
      const found = await ask('/api/find', {split: $('split').value, source: $('source').value, sample: $('sample').value.trim()});
      go(found.position);
    } catch (error) {
      fail(error.message);
    }
  });
  $('search').addEventListener('submit', async event => {
    event.preventDefault();
    try {
      await search($('name').value.trim());
    } catch (error) {
      fail(error.message);
    }
  });
  prepare_gallery();
  addEventListener('hashchange', show);
  addEventListener('keydown', event => {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'ArrowLeft') step(-1n);
    if (event.key === 'ArrowRight') step(1n);
    if (event.key === 'r') random();
  });
  show();
}
start();
