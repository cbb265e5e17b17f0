// Many samples at once, #gallery and #gallery/SOURCE, and what the indexes leave out, #bad.
let first = 0;      // of the samples that pass the filter
let drawn = 0;      // counts the galleries, so that a late answer does not fill the next

const short = n => n >= 1e9 ? (n / 1e9).toFixed(1) + ' G' : n >= 1e6 ? (n / 1e6).toFixed(1) + ' M' : n >= 1e4 ? (n / 1e3).toFixed(0) + ' k' : grouped(Math.round(n));

function histogram(title, {width, counts}) {
  const W = 300, H = 96, B = 18, T = 14;
  const top = Math.max(...counts, 1), step = W / Math.max(counts.length, 1);
  const svg = draw('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `samples by ${title}`});
  svg.append(draw('line', {x1: 0, x2: W, y1: H - B, y2: H - B}));
  counts.forEach((n, i) => {
    const height = n ? Math.max((H - B - T) * n / top, 1) : 0;
    svg.append(draw('rect', {x: i * step + 0.5, y: H - B - height, width: Math.max(step - 1, 0.5), height},
      draw('title', {}, `${grouped(n)} samples of ${grouped(i * width)}${width > 1 ? ` to ${grouped((i + 1) * width - 1)}` : ''}`)));
  });
  svg.append(draw('text', {x: 0, y: 10}, `samples, at most ${short(top)} a bar`),
    draw('text', {x: 0, y: H - 4}, '0'),
    draw('text', {x: W, y: H - 4, 'text-anchor': 'end'}, `${short(counts.length * width)} ${title}`));
  return el('figure', {}, svg);
}

function card(source, sample) {
  const text = el('span', {class: 'thumb'}, sample.images ? '…' : 'text alone');
  const name = el('b', {}, `${source}:${sample.ordinal}`);
  const flags = el('span', {class: 'flags'});
  const flag = word => flags.append(el('span', {class: 'flag'}, word));
  if (!sample.label_tokens) flag('nothing learnt');
  if (sample.truncated) flag('truncated');
  if (sample.images) {
    const picture = el('img', {loading: 'lazy', alt: '', src: '/api/thumbnail?' + query({source, sample: sample.ordinal})});
    picture.addEventListener('load', () => text.replaceChildren(picture));
    picture.addEventListener('error', () => { text.textContent = 'no picture'; });
    text.append(picture);
  }
  ask('/api/card', {source, sample: sample.ordinal}).then(found => {
    if (found.fault) { flag('cannot be read'); text.textContent = found.fault; return; }
    if (found.turned) flag('turned');
    if (found.transparent) flag('transparent');
    name.title = found.name;
    if (sample.images) return;
    // What is said, without the keys of a record, which the text may end within.
    const said = [...found.text.matchAll(/"(?:value|content|text)": ?"((?:[^"\\]|\\.)*)/g)].map(m => m[1]);
    text.textContent = said.length ? said.join(' ') : found.text;
    text.classList.add('words');
  }).catch(() => {});
  return el('a', {class: 'card', href: `#${source}:${sample.ordinal}`}, text, name,
    el('span', {class: 'dim'}, `${grouped(sample.tokens)} tokens, ${grouped(sample.label_tokens)} learnt`),
    el('span', {class: 'dim'}, (sample.images ? `${sample.images} image${sample.images > 1 ? 's' : ''}, ${short(sample.pixels)} pixels, ` : '') + `cost ${short(sample.cost)}`),
    flags);
}

async function gallery() {
  const source = $('from_source').value, number = ++drawn;
  const values = {source, only: $('only').value, order: $('order').value, from: first};
  for (const id of ['least', 'most']) if ($(id).value.trim()) values[id] = $(id).value.trim();
  document.body.classList.add('busy');
  try {
    const found = await ask('/api/gallery', values);
    if (number !== drawn) return;
    $('fault').hidden = true;
    $('histograms').replaceChildren(...Object.entries(found.histograms).map(([title, counts]) => histogram(title, counts)));
    const last = first + found.shown.length;
    $('count').textContent = (found.matches ? `Samples ${grouped(first + 1)} to ${grouped(last)} of ${grouped(found.matches)}` : 'No sample passes')
      + (found.measured < found.samples ? `, of the first ${grouped(found.measured)} of ${grouped(found.samples)}` : '');
    $('cards').replaceChildren(...found.shown.map(sample => card(source, sample)));
    $('fewer').disabled = first === 0;
    $('more').disabled = last >= found.matches;
  } catch (error) {
    fail(error.message);
  }
  document.body.classList.remove('busy');
}

async function left_out(cause) {
  const {sources} = await ask('/api/bad', cause ? {cause} : {});
  const parts = [el('h2', {}, 'Records that the indexes leave out as bad')];
  for (const s of sources.filter(s => s.bad)) {
    parts.push(el('h2', {}, `${s.name}: ${grouped(s.bad)} of ${grouped(s.samples + s.bad)}`),
      el('table', {}, el('tr', {}, ...['records', 'cause', 'as'].map(h => el('th', {}, h))),
        ...s.causes.map(c => el('tr', {}, el('td', {}, grouped(c.records)),
          el('td', {}, el('a', {href: '#bad/' + encodeURIComponent(c.cause)}, c.cause)), el('td', {}, c.example)))));
    if (s.records.length) {
      parts.push(el('p', {class: 'facts'}, `${cause ? `Of cause “${cause}”: ` : ''}${s.listed > s.records.length ? `the first ${s.records.length} of ` : ''}${grouped(s.listed)} records`),
        el('table', {}, el('tr', {}, ...['record', 'file', 'reason'].map(h => el('th', {}, h))),
          ...s.records.map(r => el('tr', {}, el('td', {}, r.key || grouped(r.offset)), el('td', {}, r.file), el('td', {}, r.reason)))));
    }
  }
  if (!sources.some(s => s.bad)) parts.push(el('p', {class: 'facts'}, 'None: every record became a sample.'));
  if (cause) parts.push(el('p', {}, el('a', {href: '#bad'}, 'All causes')));
  $('bad').replaceChildren(...parts);
}

// Shows the page of a hash that is no sample's. Returns whether it was one.
async function browse(hash) {
  const many = /^#gallery(?:\/([\w-]+))?$/.exec(hash), bad = /^#bad(?:\/(.+))?$/.exec(hash);
  document.body.classList.toggle('browsing', Boolean(many || bad));
  $('browse').hidden = !many;
  $('bad').hidden = !bad;
  $('one').className = many || bad ? '' : 'here';
  $('many').className = many ? 'here' : '';
  $('left').className = bad ? 'here' : '';
  if (!many && !bad) return false;
  shown = hash;
  document.title = many ? 'Gallery – Ballast preview' : 'Left out – Ballast preview';
  $('fault').hidden = true;
  try {
    if (many) {
      if (many[1]) $('from_source').value = many[1];
      first = 0;
      await gallery();
    } else {
      await left_out(bad[1] ? decodeURIComponent(bad[1]) : '');
    }
  } catch (error) {
    fail(error.message);
  }
  return true;
}

function prepare_gallery() {
  const sources = job.splits.flatMap(split => split.sources.map(source => source.name));
  $('from_source').replaceChildren(...sources.map(name => el('option', {}, name)));
  $('filter').addEventListener('submit', event => { event.preventDefault(); first = 0; gallery(); });
  for (const id of ['only', 'order']) $(id).addEventListener('change', () => { first = 0; gallery(); });
  $('from_source').addEventListener('change', () => { location.hash = '#gallery/' + $('from_source').value; });
  $('fewer').addEventListener('click', () => { first = Math.max(first - 24, 0); gallery(); });
  $('more').addEventListener('click', () => { first += 24; gallery(); });
}
