// SPDX-License-Identifier: Apache-2.0
// Draws the report from the JSON in #data (tuner/cli/report/report_data.cpp). Text from a store reaches the page through textContent and
// attributes that hold no code, never as markup.
'use strict';
const D = JSON.parse(document.getElementById('data').textContent);

// ---- elements
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'on') for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}
const is_phone = innerWidth <= 640, wide = is_phone ? 340 : 560;  // the width of a chart, so that its letters keep their size
const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const add = (node, ...children) => fill(node, null, children);
const s = (name, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', name), attributes, children);
const chart = (width, height, label) => s('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0, 'aria-label': label});

// ---- numbers
const known = x => typeof x === 'number' && isFinite(x);
const us = x => !known(x) ? '–' : x < 1000 ? x.toPrecision(3) + ' µs' : x < 1e6 ? (x / 1000).toPrecision(3) + ' ms' : (x / 1e6).toPrecision(3) + ' s';
const times = x => known(x) ? x.toFixed(2) + '×' : '–';
const percent = (x, digits = 0) => known(x) ? (100 * x).toFixed(digits) + ' %' : '–';
const signed = x => (x > 0 ? '+' : x < 0 ? '−' : '') + Math.abs(100 * x).toFixed(1) + ' %';
const short = x => Math.abs(x) >= 1e12 ? +(x / 1e12).toPrecision(3) + ' T' : Math.abs(x) >= 1e9 ? +(x / 1e9).toPrecision(3) + ' G' :
  Math.abs(x) >= 1e6 ? +(x / 1e6).toPrecision(3) + ' M' : Math.abs(x) >= 1000 ? +(x / 1000).toPrecision(3) + ' k' : String(+x.toPrecision(3));
const power = x => x >= 1024 && x % 1024 === 0 ? x / 1024 + 'k' : String(x);
const mean = list => Math.exp(list.reduce((sum, x) => sum + Math.log(x), 0) / list.length);
const day = text => String(text).slice(0, 10);
const count = (n, word) => n + ' ' + word + (n === 1 ? '' : 's');

// ---- pieces
const tile = (value, what, kind) => h('div', {class: 'tile'}, h('b', {class: kind}, value), h('span', {}, what));
const tag = (text, kind) => h('span', {class: 'tag ' + (kind || 'soft')}, text);
const note = (...text) => h('p', {class: 'soft'}, ...text);
const section = (id, title, lead, ...rest) => h('section', {id, 'aria-labelledby': id + '-h'}, h('h2', {id: id + '-h'}, title), note(lead), ...rest);
const figure = (title, ...rest) => h('div', {class: 'figure'}, h('h3', {}, title), ...rest);
const config = text => text.split(',').map((word, i, all) => i < all.length - 1 ? [word + ',', h('wbr')] : word);  // lines break after commas
const named = row => h('span', {'data-tip': row.p, tabindex: 0}, row.name);  // a short name, and the problem's whole text
const dot = (x, y, color, tip, r = 4) => s('circle', {cx: x, cy: y, r, fill: color, 'data-tip': tip});
const color = i => `var(--c${i % 8})`;
const legend = names => h('div', {class: 'legend'}, names.map((name, i) => h('span', {}, h('i', {style: `background:${color(i)}`}), name)));

// columns: {name, cell(row) -> text or node, key(row) -> number or text to sort by, kind}
function table(caption, columns, rows, options = {}) {
  let shown = options.most || 25, order = null, wanted = '';
  const body = h('tbody'), more = h('button', {class: 'more', on: {click: () => { shown *= 4; draw(); }}});
  const heads = columns.map((column, i) => h('th', {class: column.kind, scope: 'col'}, column.key ? h('button', {on: {click: () => {
    order = {i, down: order && order.i === i ? !order.down : column.kind === 'n'};
    heads.forEach((head, j) => j === i ? head.setAttribute('aria-sort', order.down ? 'descending' : 'ascending') : head.removeAttribute('aria-sort'));
    draw();
  }}}, column.name) : column.name));
  function draw() {
    let list = wanted ? rows.filter(row => options.text(row).toLowerCase().includes(wanted)) : rows.slice();
    if (order) {
      const key = columns[order.i].key, sign = order.down ? -1 : 1;
      list.sort((a, b) => { const x = key(a), y = key(b); return sign * (x < y ? -1 : x > y ? 1 : 0); });
    }
    body.replaceChildren(...list.slice(0, shown).map(row => h('tr', {}, columns.map(column => h('td', {class: column.kind, 'data-name': column.name}, column.cell(row))))));
    more.hidden = list.length <= shown;
    more.textContent = `Show more (${list.length - shown} are left)`;
  }
  const search = options.text && rows.length > 8 && h('div', {class: 'bar'}, h('label', {}, 'Only rows with ', h('input', {type: 'search',
    on: {input: event => { wanted = event.target.value.toLowerCase(); draw(); }}})));
  draw();
  return h('div', {}, search, h('div', {class: 'scroll'}, h('table', {}, caption && h('caption', {}, caption), h('thead', {}, h('tr', {}, heads)), body)), more);
}

// ---- charts
function ticks(lo, hi, log, base = 10, whole = false) {
  if (log) {
    const list = [], first = Math.ceil(Math.log(lo) / Math.log(base) - 1e-9), last = Math.floor(Math.log(hi) / Math.log(base) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first) / (is_phone ? 4 : 7)));
    for (let e = first - 1; e <= last; e += step)
      for (const m of base === 10 && last - first < 3 ? [1, 2, 5] : [1]) if (m * base ** e >= lo && m * base ** e <= hi) list.push(m * base ** e);
    return list;
  }
  const rough = (hi - lo) / (is_phone ? 3 : 5), unit = 10 ** Math.floor(Math.log10(rough)), list = [];
  const step = Math.max(whole ? 1 : 0, [1, 2, 5, 10].find(m => m * unit >= rough) * unit);
  for (let x = Math.ceil(lo / step) * step; x <= hi + step * 1e-6; x += step) list.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return list;
}
// Returns a text for each tick, with as many digits as neighbours need to differ.
function tick_texts(list, text) {
  let texts = list.map(text);
  for (let digits = 1; digits < 9 && new Set(texts).size < list.length; digits++) texts = list.map(x => x.toFixed(digits));
  return texts;
}
// x, y: {lo, hi, log, base, name, text, whole}; whole: no ticks between integers
function axes(x, y, label, width = wide, height = 300, left = 62) {
  const right = 12, top = 10, bottom = 44;
  const place = (axis, value, from, to) => from + (to - from) * (axis.log ? Math.log(value / axis.lo) / Math.log(axis.hi / axis.lo) :
    (value - axis.lo) / (axis.hi - axis.lo));
  const px = value => place(x, value, left, width - right), py = value => place(y, value, height - bottom, top);
  const root = chart(width, height, label);
  const at = axis => { const list = ticks(axis.lo, axis.hi, axis.log, axis.base, axis.whole), texts = tick_texts(list, axis.text || short); return list.map((value, i) => [value, texts[i]]); };
  for (const [value, text] of at(x)) add(root, s('line', {class: 'axis', x1: px(value), x2: px(value), y1: top, y2: height - bottom}),
    s('text', {class: 'tick-x', x: px(value), y: height - bottom + 17, 'text-anchor': 'middle'}, text));
  if (y.name) for (const [value, text] of at(y)) add(root, s('line', {class: 'axis', x1: left, x2: width - right, y1: py(value), y2: py(value)}),
    s('text', {class: 'tick-y', x: left - 8, y: py(value) + 4, 'text-anchor': 'end'}, text));
  add(root, s('text', {x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle'}, x.name), s('text', {x: 13, y: (height - bottom) / 2,
    'text-anchor': 'middle', transform: `rotate(-90 13 ${(height - bottom) / 2})`}, y.name));
  return {root, px, py};
}
function range(values, log, room = 0.06) {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) if (known(v) && (!log || v > 0)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
  if (!(lo <= hi)) return null;
  if (log) { const r = Math.max((hi / lo) ** room, 1.15); return {lo: lo / r, hi: hi * r, log}; }
  const r = Math.max((hi - lo) * room, Math.abs(hi) * 1e-3, 1e-9);
  return {lo: lo - r, hi: hi + r};
}
function histogram(values, name, y_name, marks, label) {
  const x = range(values.concat((marks || []).map(m => m.at)), false, 0.02);
  if (!x) return note('Nothing was timed.');
  const bins = Math.max(8, Math.min(40, Math.ceil(Math.sqrt(values.length) * 2))), counts = Array(bins).fill(0);
  for (const v of values) counts[Math.min(bins - 1, Math.floor((v - x.lo) / (x.hi - x.lo) * bins))]++;
  const {root, px, py} = axes({...x, name}, {lo: 0, hi: Math.max(...counts) * 1.08, name: y_name, whole: true}, label, wide, 240);
  counts.forEach((n, i) => {
    const a = x.lo + (x.hi - x.lo) * i / bins, b = x.lo + (x.hi - x.lo) * (i + 1) / bins;
    if (n) add(root, s('rect', {x: px(a) + .5, width: Math.max(1, px(b) - px(a) - 1), y: py(n), height: py(0) - py(n), rx: 1.5, fill: 'var(--accent)',
      opacity: .8, 'data-tip': `${a.toPrecision(4)} to ${b.toPrecision(4)}: ${n}`}));
  });
  for (const m of marks || []) add(root, s('line', {x1: px(m.at), x2: px(m.at), y1: 10, y2: py(0), stroke: m.color, 'stroke-width': 2}),
    s('text', {class: 'ink', x: px(m.at) + (m.end ? -5 : 5), y: m.y || 20, 'text-anchor': m.end ? 'end' : 'start'}, m.text));
  return root;
}
function ranges(rows, reference, name, label) {  // {name, lo, mid, hi, tip, kind}
  const mids = rows.map(r => r.mid).concat(reference), least = Math.min(...mids) / 2, most = Math.max(...mids) * 2;
  const held = v => Math.min(most, Math.max(least, v));  // one interval of noise would squeeze all others
  const x = range(rows.flatMap(r => [held(r.lo), r.mid, held(r.hi), reference]), false);
  if (!x) return note('Nothing to show.');
  const line = is_phone ? 36 : 21, height = rows.length * line + 50, {root, px} = axes({...x, name}, {lo: 0, hi: 1, name: ''}, label, wide, height, is_phone ? 12 : 268);
  add(root, s('line', {class: 'zero', x1: px(reference), x2: px(reference), y1: 6, y2: height - 44}));
  rows.forEach((r, i) => {
    const y = 12 + i * line + line / 2 + (is_phone ? 7 : 0), c = `var(--${r.kind})`;
    add(root, s('line', {x1: px(held(r.lo)), x2: px(held(r.hi)), y1: y, y2: y, stroke: c, 'stroke-width': 5, 'stroke-linecap': 'round', opacity: .35, 'data-tip': r.tip}),
      dot(px(r.mid), y, c, r.tip, 4.5), s('text', {x: is_phone ? 12 : 260, y: is_phone ? y - 10 : y + 4, 'text-anchor': is_phone ? 'start' : 'end', 'data-tip': r.name},
        r.name.length > 40 ? r.name.slice(0, 39) + '…' : r.name));
  });
  return root;
}

// ---- a store
const sure = w => known(w.d[1]) && w.d[1] > w.t[2];
const gain = w => w.d[0] / w.t[0];
const rate = w => w.flops > 0 ? w.flops / w.t[0] * 1e6 : 0;
const noisy = w => w.t[2] - w.t[1] > 0.2 * w.t[0];  // as kNoisyWidth of cache/winner_rule.hpp
const best_peer = w => Object.entries(w.peers || {}).reduce((best, one) => best && best[1] <= one[1] ? best : one, null);  // [name, us]
const not_used = w => w.old.startsWith('template');  // else measured under another driver or power limit
const old_kind = w => w.old === '' ? 'good' : not_used(w) ? 'bad' : 'warn';
const config_cell = {name: 'config', kind: 'cfg'};

function what_runs() {
  const rows = D.winners, fresh = rows.filter(w => !not_used(w));
  const parts = [], [unit, word] = Math.max(...rows.map(rate)) >= 1e12 ? [1e12, 'TFLOP/s'] : [1e9, 'GFLOP/s'];
  if (D.model) for (const kind of D.model.kinds) {
    parts.push(h('h3', {}, kind.name + (kind.layers ? `, ${count(kind.layers, 'layer')}` : '')));
    if (kind.refused) parts.push(h('p', {class: 'bad'}, kind.refused));
    for (const text of kind.not_supported) parts.push(h('p', {class: 'bad'}, 'Not supported: ' + text));
    parts.push(table('', [
      {name: 'problem', cell: r => r.name, key: r => r.name, kind: 'w'},
      {name: 'rung', cell: r => r.rung ? tag(r.rung, r.rung === 'exact' || r.rung === 'pinned' ? 'good' : r.rung === 'reference' ? 'bad' : 'warn') : tag('none', 'bad'),
        key: r => String(r.rung)},
      {name: 'expected', kind: 'n', cell: r => us(r.us), key: r => r.us || 0},
      {name: 'why', cell: r => r.why}, {...config_cell, name: 'kernel', cell: r => r.tpl ? [r.tpl, ' ', config(r.cfg)] : ''}], kind.problems));
  }
  if (D.model) for (const text of D.model.notes) parts.push(note(text));
  parts.push(table(D.model ? 'All winners of the store' : '', [
    {name: 'problem', kind: 'w', cell: w => named(w), key: w => w.name},
    {name: 'state', cell: w => [tag(w.old || 'in use', old_kind(w)), w.pin ? tag('pinned') : null], key: w => w.old},
    {name: 'time', kind: 'n', cell: w => us(w.t[0]), key: w => w.t[0] || 0},
    {name: 'over default', kind: 'n', cell: w => times(gain(w)), key: w => gain(w) || 0},
    {name: word, kind: 'n', cell: w => rate(w) ? String(+(rate(w) / unit).toPrecision(3)) : '–', key: rate},
    {name: 'of roofline', kind: 'n', cell: w => w.share ? percent(w.share) : '–', key: w => w.share || 0},
    D.peers && {name: 'over best peer', kind: 'n', key: w => best_peer(w) ? best_peer(w)[1] / w.t[0] : 0,
      cell: w => best_peer(w) ? [times(best_peer(w)[1] / w.t[0]), ' ', best_peer(w)[0]] : '–'},
    {name: 'template', cell: w => D.templates[w.tpl], key: w => D.templates[w.tpl]},
    {...config_cell, cell: w => config(w.cfg)}].filter(column => column), rows, {most: D.model ? 10 : 15, text: w => w.p + ' ' + w.name + ' ' + w.cfg + ' ' + D.templates[w.tpl] + ' ' + w.old}));
  return section('runs', D.model ? `What runs for ${D.model.name}` : 'What runs', D.model ? `On ${D.model.device}, with this store.` :
    `${count(rows.length, 'winner')}, of which this version of attune uses ${fresh.length}. Name a model (attune report MODEL) to see its layers here.`, parts);
}

function what_gave() {
  const rows = D.winners.filter(w => !w.pin && known(gain(w)));
  if (!rows.length) return section('gave', 'What tuning gave', 'Nothing was tuned.');
  const gains = rows.map(gain), by_gain = rows.slice().sort((a, b) => gain(b) - gain(a)), saved = rows.reduce((sum, w) => sum + w.d[0] - w.t[0], 0);
  const shown = by_gain.length <= 16 ? by_gain : by_gain.slice(0, 8).concat(by_gain.slice(-8));
  const row = w => ({name: w.name, mid: gain(w), lo: w.d[1] / w.t[2], hi: w.d[2] / w.t[1], kind: sure(w) ? 'good' : gain(w) < 1 ? 'bad' : 'soft',
    tip: `${w.p}\n${times(gain(w))}: ${us(w.t[0])}, default ${us(w.d[0])}\n${w.cfg}\ndefault ${w.dcfg}`});
  return section('gave', 'What tuning gave', 'Time of the untuned default divided by the time of the winner, both from one final race.',
    h('div', {class: 'tiles'}, tile(times(mean(gains)), 'geometric mean'), tile(times(gain(by_gain[0])), 'largest', sure(by_gain[0]) ? 'good' : ''),
      tile(times(by_gain[by_gain.length - 1] && gain(by_gain[by_gain.length - 1])), 'smallest', gain(by_gain[by_gain.length - 1]) < 1 ? 'bad' : ''),
      tile(rows.filter(sure).length + ' of ' + rows.length, 'sure: the intervals do not overlap'), tile(us(saved), 'saved if each problem runs once')),
    h('div', {class: 'two'}, figure('All gains', histogram(gains, 'times faster than the default', 'problems', [{at: 1, text: 'default', color: 'var(--soft)'}],
      'Histogram of gains')), figure(by_gain.length <= 16 ? 'By problem' : 'The eight largest and the eight smallest',
      ranges(shown.map(row), 1, 'times faster than the default', 'Gains with intervals'))));
}

function how_sure() {
  const rows = D.winners.filter(w => !w.pin), ties = rows.filter(w => w.next && w.next.t[1] <= w.t[2]);
  const wide = rows.filter(w => w.t[2] - w.t[1] > 0.05 * w.t[0]), open = rows.filter(w => !w.done), close = rows.filter(w => w.next);
  const distance = w => w.next.t[0] / w.t[0] - 1;
  return section('sure', 'How sure is it', 'The runner-up is the second fastest kernel of the same final race. Where the intervals overlap, either kernel is a good choice, and "decided by" says why this one won. A distance below 0 is such a tie: the runner-up\'s median was lower.',
    h('div', {class: 'tiles'}, tile(ties.length + ' of ' + rows.length, 'ties with the runner-up'), tile(wide.length, 'intervals wider than 5 %', wide.length ? 'warn' : ''),
      tile(open.length, 'searches that the budget ended', open.length ? 'warn' : ''), tile(rows.filter(w => w.effort === 'quick').length, 'tuned with effort quick')),
    table('Distance of the runner-up', [
      {name: 'problem', kind: 'w', cell: w => named(w), key: w => w.name},
      {name: 'distance', kind: 'n', cell: w => signed(distance(w)), key: distance},
      {name: 'interval', kind: 'n', cell: w => `${us(w.t[1])} to ${us(w.t[2])}`, key: w => (w.t[2] - w.t[1]) / w.t[0]},
      {name: 'tried', kind: 'n', cell: w => String(w.tried), key: w => w.tried},
      {name: 'decided by', cell: w => w.why, key: w => w.why}, {...config_cell, name: 'runner-up', cell: w => config(w.next.cfg)}], close,
      {most: 10, text: w => w.p + w.name + w.why}));
}

function what_is_old() {
  const groups = new Map();
  for (const w of D.winners) {
    const key = JSON.stringify([w.old, w.tpl, w.dev, w.drv]), group = groups.get(key) || {w, n: 0, first: w.made, last: w.made};
    group.n++; if (w.made < group.first) group.first = w.made; if (w.made > group.last) group.last = w.made;
    groups.set(key, group);
  }
  const rows = [...groups.values()].sort((a, b) => (a.w.old < b.w.old ? 1 : -1));
  const old = D.winners.filter(w => w.old !== '').sort((a, b) => not_used(b) - not_used(a));
  return section('old', 'What is old', 'A winner is not used if its template has changed since. A winner from another driver or power limit is used, but its times may be wrong.',
    table('', [
      {name: 'state', cell: g => tag(g.w.old || 'in use', old_kind(g.w)), key: g => g.w.old}, {name: 'winners', kind: 'n', cell: g => String(g.n), key: g => g.n},
      {name: 'template', cell: g => D.templates[g.w.tpl], key: g => g.w.tpl}, {name: 'device', cell: g => D.devices[g.w.dev], key: g => g.w.dev},
      {name: 'driver, power limit', cell: g => D.drivers[g.w.drv] || '–', key: g => g.w.drv},
      {name: 'measured', cell: g => day(g.first) === day(g.last) ? day(g.first) : day(g.first) + ' to ' + day(g.last), key: g => g.first}], rows),
    old.length > 0 && [note('Tune these again on their device:'),
      h('pre', {}, [...new Set(old.map(w => w.p))].slice(0, 5).map(p => `attune tune --refresh --problem '${p.replace(/'/g, '’')}'\n`).join('') +
        (old.length > 5 ? '…' : ''))]);
}

function what_failed() {
  const tried = D.trials.length, failed = D.failures.reduce((sum, f) => sum + f.n, 0);
  return section('failed', 'What failed', failed ? `${failed} of ${count(tried, 'trial')}. A failed config costs tuning time; a config that gives wrong results is never chosen.` :
    `None of ${count(tried, 'trial')}.`, failed > 0 && table('', [
    {name: 'trials', kind: 'n', cell: f => String(f.n), key: f => f.n}, {name: 'status', cell: f => tag(f.status, f.status === 'wrong_result' ? 'bad' : 'warn'), key: f => f.status},
    {name: 'template', cell: f => f.tpl, key: f => f.tpl}, {name: 'reason', cell: f => f.reason, key: f => f.reason},
    {...config_cell, name: 'example', cell: f => [config(f.cfg), h('br'), config(f.p)]}], D.failures, {most: 10, text: f => f.reason + f.cfg + f.status}));
}

// ---- where time is left
function over_length(rows) {
  const groups = new Map();
  for (const w of rows) if (rate(w) > 0 && w.n > 0) {
    const key = w.family + '/' + w.dev;
    if (!groups.has(key)) groups.set(key, {name: w.series, points: new Map()});
    const old = groups.get(key).points.get(w.n);
    if (!old || rate(old) < rate(w)) groups.get(key).points.set(w.n, w);
  }
  const list = [...groups.values()].sort((a, b) => b.points.size - a.points.size).slice(0, 8);
  const name_of = g => g.name.replace(/,? ?1 x 1(?=\D|$)/, '').trim();
  const rate_of = (w, us) => w.flops / us * 1e6, peers = [...new Set(rows.flatMap(w => Object.keys(w.peers || {})))].slice(0, 6), dash = ['2 3', '7 3', '1 5', '9 3 2 3', '4 4', '12 4'];
  const points = list.flatMap(g => [...g.points.values()]), x = range(points.map(w => w.n), true);
  const y = range(points.flatMap(w => [rate(w), ...Object.values(w.peers || {}).map(us => rate_of(w, us))]), false, 0.05);
  if (!points.length) return note('No winner does products.');
  const {root, px, py} = axes({...x, base: 2, name: 'keys', text: power}, {...y, lo: 0, name: 'FLOP/s'}, 'Speed over length');
  list.forEach((g, i) => {
    const line = [...g.points.values()].sort((a, b) => a.n - b.n), path = (those, speed) => those.map(w => px(w.n) + ',' + py(speed(w))).join(' ');
    peers.forEach((name, j) => {
      const those = line.filter(w => (w.peers || {})[name] > 0), speed = w => rate_of(w, w.peers[name]);
      if (those.length) add(root, s('polyline', {points: path(those, speed), fill: 'none', stroke: color(i), 'stroke-width': 1.2, 'stroke-dasharray': dash[j]}),
        those.map(w => dot(px(w.n), py(speed(w)), color(i), `${name}: ${w.name}\n${short(speed(w))}FLOP/s, ${us(w.peers[name])}`, 2)));
    });
    add(root, s('polyline', {points: path(line, rate), fill: 'none', stroke: color(i), 'stroke-width': 2}),
      line.map(w => dot(px(w.n), py(rate(w)), color(i), `${w.name}\n${short(rate(w))}FLOP/s, ${us(w.t[0])}\n${w.cfg}`)));
  });
  const key = (name, j) => h('span', {}, s('svg', {class: 'dash', viewBox: '0 0 34 8', 'aria-hidden': 'true'}, s('line', {x1: 0, x2: 34, y1: 4, y2: 4, stroke: 'currentColor',
    'stroke-width': 1.5, 'stroke-dasharray': dash[j]})), name);
  return [root, legend(list.map(name_of)), peers.length > 0 && h('div', {class: 'legend', 'data-peers': peers.length}, peers.map(key))];
}
function roofline(rows) {
  const points = rows.filter(w => rate(w) > 0 && w.bytes > 0);
  if (!points.length) return note('No winner does products.');
  const intensity = w => w.flops / w.bytes, roofs = new Map();
  for (const w of points) if (w.roof[0] > 0 && w.roof[1] > 0) roofs.set(w.roof.join(), w.roof);
  const tops = [...roofs.values()].sort((a, b) => b[0] - a[0]).slice(0, 3);
  const x = range(points.map(intensity).concat(tops.map(r => r[0] / r[1])), true), y = range(points.map(rate).concat(tops.map(r => r[0])), true);
  const {root, px, py} = axes({...x, name: 'FLOP per byte'}, {...y, name: 'FLOP/s'}, 'Roofline');
  tops.forEach(([flops, bytes]) => {
    const from = Math.max(x.lo, y.lo / bytes), knee = Math.min(Math.max(flops / bytes, from), x.hi);
    add(root, s('polyline', {points: [[from, from * bytes], [knee, Math.min(flops, knee * bytes)], [x.hi, Math.min(flops, x.hi * bytes)]].map(
      ([a, b]) => px(a) + ',' + py(Math.max(b, y.lo))).join(' '), fill: 'none', stroke: 'var(--soft)', 'stroke-width': 1.5,
      'data-tip': `${short(flops)}FLOP/s at the clock that was read, ${short(bytes)}B/s`}));
  });
  const most = points.length > 3000 ? points.filter((w, i) => i % Math.ceil(points.length / 3000) === 0) : points;
  add(root, most.map(w => dot(px(intensity(w)), py(rate(w)), 'var(--accent)', `${w.name}\n${short(rate(w))}FLOP/s${w.share ? ', ' + percent(w.share) + ' of the roofline' : ''}`, 3.5)));
  return [root, note(tops.length ? 'Peaks are for the clock that was read while the kernel ran.' : 'The peaks of this device are not known, so only the points are shown.')];
}
function knobs() {
  const names = [...new Set(D.knobs.map(k => k.tpl))];
  return names.map(tpl => {
    const list = D.knobs.filter(k => k.tpl === tpl).slice(0, 12), most = Math.max(...list.map(k => k.share), 1e-9);
    const line = 24, width = wide, room = width - 210, root = chart(width, list.length * line + 4, 'Importance of knobs of ' + D.templates[tpl]);
    list.forEach((k, i) => add(root, s('text', {class: 'ink', x: 130, y: i * line + 16, 'text-anchor': 'end'}, k.knob),
      s('rect', {x: 140, y: i * line + 5, width: Math.max(1, k.share / most * room), height: 15, rx: 2, fill: 'var(--accent)', opacity: .8,
        'data-tip': k.values.map(([value, n, slower]) => `${value}: ${signed(slower)} from the mean, ${n} trials`).join('\n')}),
      s('text', {x: 146 + Math.max(1, k.share / most * room), y: i * line + 16}, percent(k.share))));
    return figure(`Knobs of ${D.templates[tpl]}: share of the spread of times that each knob explains alone`, root);
  });
}
function heat_map(trials, tpl) {
  const names = D.knob_names[tpl] || [], varies = names.filter((name, i) => new Set(trials.map(t => t[6][i])).size > 1);
  const out = h('div');
  if (varies.length < 2) return note('Fewer than two knobs vary.');
  const pick = (name, otherwise) => varies.includes(name) ? name : otherwise;
  let a = pick('block_n', varies[0]), b = pick('block_m', varies.find(name => name !== a));
  if (a === b) b = varies.find(name => name !== a);
  const chooser = (value, set, label) => h('label', {}, label + ' ', h('select', {on: {change: event => { set(event.target.value); draw(); }}},
    varies.map(name => h('option', {selected: name === value}, name))));
  function draw() {
    const i = names.indexOf(a), j = names.indexOf(b), axis = k => [...new Set(trials.map(t => t[6][k]))].sort((x, y) => x - y);
    const xs = axis(i), ys = axis(j).reverse(), ok = trials.filter(t => known(t[3])), least = Math.min(...ok.map(t => t[3]));
    const width = wide, cell_w = Math.min(96, (wide - 80) / xs.length), cell_h = 34;
    const root = chart(width, ys.length * cell_h + 24, `Best time by ${a} and ${b}`);
    ys.forEach((y, row) => {
      add(root, s('text', {x: 66, y: row * cell_h + 22, 'text-anchor': 'end'}, String(y)));
      xs.forEach((x, column) => {
        const here = trials.filter(t => t[6][i] === x && t[6][j] === y), good = here.filter(t => known(t[3]));
        if (!here.length) return;
        const best = Math.min(...good.map(t => t[3])), ratio = best / least, heat = good.length ? Math.max(0, 1 - (ratio - 1) / 0.6) : 0;
        add(root, s('rect', {x: 74 + column * cell_w, y: row * cell_h, width: cell_w - 2, height: cell_h - 2, rx: 3,
          fill: good.length ? `color-mix(in srgb, rgb(var(--heat-high)) ${Math.round(100 * heat)}%, rgb(var(--heat-low)))` : 'none',
          stroke: good.length ? 'none' : 'var(--line)', 'data-tip': `${a} ${x}, ${b} ${y}: ${good.length ? us(best) : 'failed'}, ${count(here.length, 'trial')}`}),
          s('text', {x: 74 + column * cell_w + cell_w / 2 - 1, y: row * cell_h + 21, 'text-anchor': 'middle', 'pointer-events': 'none',
            style: good.length ? `fill:${heat > .5 ? 'var(--card)' : 'var(--ink)'}` : ''}, good.length ? (cell_w > 40 ? ratio.toFixed(2) : '') : 'failed'));
      });
    });
    xs.forEach((x, column) => add(root, s('text', {x: 74 + column * cell_w + cell_w / 2, y: ys.length * cell_h + 16, 'text-anchor': 'middle'}, String(x))));
    out.replaceChildren(h('div', {class: 'bar'}, chooser(a, v => { a = v; }, 'columns'), chooser(b, v => { b = v; }, 'rows')), root,
      note(`Columns are ${a}, rows are ${b}. A cell has its best time divided by the best of all.`));
  }
  draw();
  return out;
}
function one_problem() {
  const by_key = new Map();
  for (const t of D.trials) { if (!by_key.has(t[0])) by_key.set(t[0], []); by_key.get(t[0]).push(t); }
  const rows = D.winners.filter(w => by_key.has(w.key) && !w.pin).sort((a, b) => (a.old !== '') - (b.old !== '') ||
    by_key.get(b.key).length - by_key.get(a.key).length).slice(0, 500);
  if (!rows.length) return null;
  const out = h('div'), select = h('select', {id: 'problem', on: {change: () => draw(rows[select.value])}},
    rows.map((w, i) => h('option', {value: i}, `${w.name}, ${D.templates[w.tpl]}, ${count(by_key.get(w.key).length, 'trial')}${w.old ? ', ' + w.old : ''}`)));
  function draw(w) {
    const trials = by_key.get(w.key), timed = trials.filter(t => known(t[3])), mine = trials.filter(t => t[1] === w.tpl);
    const marks = [{at: w.t[0], text: 'winner', color: 'var(--good)', y: 20}];
    if (known(w.d[0])) marks.push({at: w.d[0], text: 'default', color: 'var(--c1)', y: 36});
    out.replaceChildren(note(w.p), h('div', {class: 'two'}, figure(`Times of ${count(timed.length, 'config')}; ${trials.length - timed.length} failed`,
      histogram(timed.map(t => t[3]), 'µs', 'configs', marks, 'Distribution of trials')), figure(`Map of ${D.templates[w.tpl]}`, heat_map(mine, w.tpl))));
  }
  draw(rows[0]);
  return h('div', {}, h('h3', {style: 'margin-top:26px'}, 'One problem'), h('div', {class: 'bar'}, h('label', {for: 'problem'}, 'Problem'), select), out);
}
const where_left = () => {
  const rows = D.winners.filter(w => !not_used(w) && !w.pin), used = rows.length ? rows : D.winners;
  return section('left', 'Where time is left', 'Look for a low share of the roofline, a point far from its neighbours on the curve, and a knob that still matters.',
    used.some(noisy) && note('Some of these times are noisy. Then a knob may seem to matter by chance.'),
    h('div', {class: 'two'}, figure('Speed over length', over_length(used)), figure('Roofline', roofline(used)), knobs()), one_problem());
};
const environment = () => section('how', 'How this was made', 'The store, devices and compilers that the rows come from.', table('', [{name: '', cell: r => r[0]}, {name: '', cell: r => r[1]}],
  [['store', D.store], ['page', `attune ${D.version}, ${D.made}`], ['devices', D.devices.join('; ')], ['drivers', D.drivers.filter(x => x).join(', ') || '–'],
    ['compilers', D.compilers.join(', ')], ...(D.peers ? [['peers', `${D.peers.file}, on ${D.peers.device || 'an unknown device'}`]] : [])]), note('Commands:'), h('pre', {}, 'attune db ls\nattune db verify\nattune report --out report.html'));

// ---- two stores
function difference() {
  const ratio = r => r.a.t[0] / r.b.t[0], apart = r => r.a.t[2] < r.b.t[1] || r.b.t[2] < r.a.t[1], rows = D.rows.slice().sort((a, b) => ratio(a) - ratio(b));
  const faster = rows.filter(r => apart(r) && ratio(r) > 1), slower = rows.filter(r => apart(r) && ratio(r) < 1);
  const kind = r => !apart(r) ? 'soft' : ratio(r) > 1 ? 'good' : 'bad', shown = rows.length <= 24 ? rows : rows.slice(0, 12).concat(rows.slice(-12));
  return [section('gains', 'Gains and losses', `Winners of ${D.stores[0]} against those of ${D.stores[1]}: the time before divided by the time after. Where intervals overlap, it counts as no difference.`,
    h('div', {class: 'tiles'}, tile(rows.length ? times(mean(rows.map(ratio))) : '–', 'geometric mean'), tile(faster.length, 'faster', 'good'),
      tile(slower.length, 'slower', slower.length ? 'bad' : ''), tile(rows.length - faster.length - slower.length, 'no difference'),
      tile(`${D.only_before} / ${D.only_after}`, 'only before / only after')),
    rows.length > 0 && h('div', {class: 'figure narrow'}, ranges(shown.map(r => ({name: r.name, mid: ratio(r), lo: r.a.t[1] / r.b.t[2], hi: r.a.t[2] / r.b.t[1], kind: kind(r),
      tip: `${r.p}\n${us(r.a.t[0])} before, ${us(r.b.t[0])} after\n${r.a.cfg}\n${r.b.cfg}`})), 1, 'times faster after', 'Ratios with intervals')),
    table('', [{name: 'problem', kind: 'w', cell: r => named(r), key: r => r.name}, {name: 'device', cell: r => r.dev, key: r => r.dev},
      {name: 'before', kind: 'n', cell: r => us(r.a.t[0]), key: r => r.a.t[0]}, {name: 'after', kind: 'n', cell: r => us(r.b.t[0]), key: r => r.b.t[0]},
      {name: 'ratio', kind: 'n', cell: r => h('span', {class: kind(r)}, times(ratio(r))), key: ratio},
      {...config_cell, name: 'config', cell: r => r.a.cfg === r.b.cfg ? 'the same' : [config(r.a.cfg), h('br'), config(r.b.cfg)]}], rows, {text: r => r.p + r.name + r.dev}))];
}

// ---- the page
function tips() {
  const box = h('div', {id: 'tip', role: 'status', hidden: true});
  function show(node, x, y) {
    const text = node && node.getAttribute && node.getAttribute('data-tip');
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    const r = box.getBoundingClientRect();
    box.style.left = Math.max(6, Math.min(x + 12, innerWidth - r.width - 6)) + 'px';
    box.style.top = (y + 16 + r.height > innerHeight ? Math.max(6, y - r.height - 10) : y + 16) + 'px';
  }
  const beside = node => { const r = node.getBoundingClientRect(); show(node, r.left + r.width / 2, r.top + r.height / 2); };
  // The left and right arrow keys step through the tips of the focused chart.
  function step(by) {
    const root = document.activeElement, points = root && root.localName === 'svg' ? [...root.querySelectorAll('[data-tip]')] : [];
    if (!points.length) return false;
    const old = points.findIndex(point => point.classList.contains('at')), now = (old < 0 ? (by > 0 ? 0 : -1) : old + by + points.length) % points.length;
    if (old >= 0) points[old].classList.remove('at');
    const next = points.at(now);
    next.classList.add('at');
    beside(next);
    return true;
  }
  document.addEventListener('pointermove', event => show(event.target, event.clientX, event.clientY));
  document.addEventListener('focusin', event => beside(event.target));
  document.addEventListener('focusout', event => event.target.querySelectorAll('.at').forEach(point => point.classList.remove('at')));
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') box.hidden = true;
    if ((event.key === 'ArrowRight' || event.key === 'ArrowLeft') && step(event.key === 'ArrowRight' ? 1 : -1)) event.preventDefault();
  });
  return box;
}
function main() {
  const page = document.getElementById('page'), is_diff = D.kind === 'diff';
  const sections = is_diff ? difference() : [what_runs(), what_gave(), how_sure(), what_is_old(), what_failed(), where_left(), environment()];
  const loud = (D.winners || []).filter(w => !w.pin && noisy(w)).length, all = (D.winners || []).filter(w => !w.pin).length;
  const banner = loud > 0 && h('p', {class: 'banner', role: 'note'}, `Noise: the times of ${loud} of ${count(all, 'winner')} vary by more than 20 %. Small gains below may be chance. ` +
    'Tune again on an idle machine with attune tune --refresh.');
  page.replaceChildren(h('header', {}, h('h1', {}, is_diff ? 'Two stores of kernels' : 'Tuned attention kernels'),
    h('p', {class: 'soft'}, is_diff ? `Made ${day(D.made)} by attune ${D.version}` : `${count(D.winners.length, 'winner')} from ${count(D.trials.length, 'trial')} on ${D.devices.join('; ') ||
      'no device'}. Made ${day(D.made)} by attune ${D.version}.`)), h('nav', {'aria-label': 'Sections'}, sections.map(one => h('a', {href: '#' + one.id},
    one.querySelector('h2').textContent))), banner || '', ...sections);
  document.body.append(tips());
  const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (wanted) wanted.scrollIntoView();
  document.documentElement.dataset.drawn = Math.round(performance.now());  // ms since the page was requested; a test reads it
}
main();
