import { clusterText, parts } from '../../src/hub-model/cluster';
import { DAYS, lastDays, top, total } from '../../src/hub-model/hours';
import { addressOf, pages, sortBy, START } from '../../src/hub-model/query';
import { keyOf, kindHelp, kinds, lockOf, versionOf } from '../../src/hub-model/subject';
import { fromWords } from '../../src/words/translation';
import { own, row } from './rows';

const trans = fromWords({});
const CLUSTER = {
  total: 8000,
  owned: 4000,
  shares: 500,
  draining: 0,
  free: 3500,
  unhealthy: 0,
  waiting: 2000
};

test('a column sorts up, then down, and begins at the first page', () => {
  const once = sortBy({ ...START, page: 3 }, 'used');
  expect(addressOf(once)).toBe('subjects?sort=used&page=1&size=50');
  expect(addressOf(sortBy(once, 'used'))).toBe('subjects?sort=-used&page=1&size=50');
  expect(sortBy(sortBy(once, 'used'), 'name').descending).toBe(false);
});

test('what is searched is quoted', () => {
  expect(addressOf({ ...START, search: 'a&b=ü', kind: 'User' })).toBe(
    'subjects?sort=kind&page=1&size=50&search=a%26b%3D%C3%BC&kind=User'
  );
});

test('there is always a page', () => {
  expect([0, 1, 50, 51, 10_000].map(pages)).toEqual([1, 1, 1, 2, 200]);
});

test('subjects of the same name differ by kind and hub', () => {
  const keys = [
    { kind: 'User', name: 'ml', hub: '' },
    { kind: 'Group', name: 'ml', hub: '' },
    { kind: 'Group', name: 'ml', hub: 'x' }
  ].map(subject => keyOf(subject as Parameters<typeof keyOf>[0]));
  expect(new Set(keys).size).toBe(3);
});

test('one machine has no namespaces', () => {
  expect(kinds(false)).toContain('Namespace');
  expect(kinds(true)).toEqual(['User', 'Group', 'Default', 'Cap']);
  expect(kindHelp('Default', trans)).toContain('namespaces');
  expect(kindHelp('Default', trans, true)).not.toContain('namespaces');
});

test('rows that a tool keeps are locked, copies of properties are not', () => {
  expect(lockOf(row(), trans)).toBe('');
  expect(lockOf(row({ own: own({}, { managedBy: 'Helm' }) }), trans)).toContain('Helm keeps');
  const cap = row({ subject: { kind: 'Cap', name: '', hub: '' } });
  expect(lockOf(cap, trans)).toContain('kubectl');
  expect(lockOf(cap, trans, true)).toContain('jupyter gpu limits set --machine cap');
  const mirrored = row({ own: own({}, { managedBy: 'x', mirrored: true }) });
  expect([lockOf(mirrored, trans), versionOf(mirrored)]).toEqual(['', '']);
  expect(versionOf(row({ own: own({}) }))).toBe('7');
});

test('the bar has a part for each state, and the same in words', () => {
  expect(parts(CLUSTER, trans).map(({ key, width }) => [key, width])).toEqual([
    ['owned', 50],
    ['shares', 6.25],
    ['free', 43.75]
  ]);
  expect(clusterText(CLUSTER, trans)).toBe(
    '8 GPUs in the cluster: 4 GPUs in use, 0.5 GPU in shares and 3.5 GPUs free. People wait for 2 GPUs more.'
  );
  expect(clusterText({ ...CLUSTER, total: 0 }, trans)).toContain('no GPUs');
  expect(clusterText(CLUSTER, trans, true)).toContain('8 GPUs in this machine: 4 GPUs in use');
  expect(clusterText({ ...CLUSTER, total: 0 }, trans, true)).toContain('No GPU of this machine');
  expect(parts({ ...CLUSTER, total: 0, owned: 0, shares: 0, free: 0 }, trans)[0].width).toBe(0);
});

test('the history has every day, and nonsense counts as nothing', () => {
  const days = lastDays(
    { '2026-03-01': '12.5', '2026-02-28': 'x', '2020-01-01': '9' },
    '2026-03-01'
  );
  expect(days).toHaveLength(DAYS);
  expect(days.at(-1)).toEqual({ day: '2026-03-01', hours: 12.5 });
  expect(days.at(-2)).toEqual({ day: '2026-02-28', hours: 0 });
  expect(days[0].day).toBe('2026-01-26');
  expect(total(days)).toBe('12.5');
  expect(top(days)).toBe(20);
  expect(top(lastDays({}, '2026-03-01'))).toBe(1);
  expect(top(lastDays({ '2026-03-01': '50' }, '2026-03-01'))).toBe(50);
});
