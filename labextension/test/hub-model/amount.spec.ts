import { amount, milliOf, readTyped, sourced, typedOf } from '../../src/hub-model/amount';
import { fromWords } from '../../src/words/translation';

const trans = fromWords({});

test('quantities are read and told in words', () => {
  expect([milliOf('2'), milliOf('500m'), milliOf('unlimited'), milliOf('2Gi')]).toEqual([
    2000,
    500,
    null,
    null
  ]);
  expect(amount('2', trans)).toBe('2 GPUs');
  expect(amount('500m', trans)).toBe('0.5 GPU');
  expect(amount('unlimited', trans)).toBe('unlimited');
  expect(amount('ofANewerService', trans)).toBe('ofANewerService');
});

test.each([
  ['2', '2'],
  [' 0,5 ', '500m'],
  ['1.25', '1250m'],
  ['0', '0'],
  ['Unlimited', 'unlimited'],
  ['∞', 'unlimited'],
  ['', null],
  ['inherit', null]
])('%j is typed for %j', (typed, value) => {
  expect(readTyped(typed, trans)).toEqual({ value });
});

test.each(['two', '-1', '1e3', '0.0001', '10000', '=1', 'unlimited 2'])(
  '%j is no amount',
  typed => {
    expect(readTyped(typed, trans)).toHaveProperty('error');
  }
);

test('a guarantee cannot be unlimited', () => {
  expect(readTyped('unlimited', trans, false)).toHaveProperty('error');
});

test('what a field shows can be typed again', () => {
  for (const value of ['2', '500m', '1250m', 'unlimited']) {
    expect(readTyped(typedOf(value), trans)).toEqual({ value });
  }
  expect([typedOf(null), typedOf(undefined), typedOf({})]).toEqual(['', '', '']);
});

test('a value is shown with its source, to its user and to others', () => {
  const source = { kind: 'User', name: 'ann', by: 'root', at: 0, part: null, unreadable: false };
  const value = { value: '2', source };
  expect(sourced(value, trans, true)).toBe('2 GPUs, set for you by root on 1 January');
  expect(sourced(value, trans, false)).toBe('2 GPUs, set for user ann by root on 1 January');
});
