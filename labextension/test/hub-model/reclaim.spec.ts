import { changeTexts, fieldText } from '../../src/hub-model/field';
import { reclaimable, reclaimed } from '../../src/hub-model/reclaim';
import { fromWords } from '../../src/words/translation';
import { own, row } from './rows';

const trans = fromWords({});
const ML = { kind: 'Group', name: 'ml', hub: 'jhub' } as const;

test('something is taken only from users who have more', () => {
  const rows = [
    row({ used: 2000 }),
    row({ used: 0 }),
    row({ used: 500 }),
    row({ subject: ML, used: 3000 }),
    row({ used: 2000, own: own({ max: '4' }, { managedBy: 'Helm' }) })
  ];
  expect(reclaimable(rows)).toHaveLength(3);
  expect(reclaimed(rows, '1', '10m', trans)).toEqual([
    { subject: rows[0].subject, set: { max: '1', grace: '10m' }, version: '' }
  ]);
});

test('a guarantee is lowered with the limit, and no other one', () => {
  const guaranteed = (amount: string) => [row({ used: 3000, own: own({ guaranteed: amount }) })];
  expect(reclaimed(guaranteed('2'), '1', '0s', trans)[0].set).toEqual({
    max: '1',
    grace: '0s',
    guaranteed: '1'
  });
  expect(reclaimed(guaranteed('500m'), '1', '0s', trans)[0].set).toEqual({ max: '1', grace: '0s' });
});

test('a change is described field by field', () => {
  expect(changeTexts({ max: '2', weight: 3 }, { max: '500m', weight: 3 }, trans)).toEqual([
    'GPUs at most: 2 GPUs → 0.5 GPU'
  ]);
  expect(changeTexts(null, { max: 'unlimited', hours: [] }, trans)).toEqual([
    'GPUs at most: inherited → unlimited',
    'Hours: inherited → none'
  ]);
  expect(changeTexts({ guaranteed: '1' }, null, trans)).toEqual([
    'removed',
    'GPUs guaranteed: 1 GPU → inherited'
  ]);
  expect(fieldText('grace', '10m', trans)).toBe('10 min');
});
