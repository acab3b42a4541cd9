import { readSubjectDetails } from '../../src/hub-api/subject';
import { told } from '../../src/hub-model/effective';
import { changeTexts, daysText, fieldLabel, FIELDS, fieldText } from '../../src/hub-model/field';
import { choiceNames, helpOf } from '../../src/hub-model/form-words';
import { manifest } from '../../src/hub-model/manifest';
import { readSubjectName } from '../../src/hub-model/subject';
import { fromWords } from '../../src/words/translation';

const trans = fromWords({});
const ML = { kind: 'Group', name: 'ml', by: 'root', at: 0 };
const HOURS = { days: ['Mon', 'Tue', 'Wed', 'Thu', 'Fri'], from: '08:00', to: '20:00', max: '2' };

/** What the service says of ann. */
const details = readSubjectDetails(
  {
    subject: { kind: 'User', name: 'ann', hub: 'jhub' },
    object: 'user-ann',
    own: null,
    effective: {
      max: { value: '2', source: ML },
      models: { A100: { value: '1', source: ML } },
      hours: { alternatives: [[{ value: HOURS, source: ML }]], cap: [] },
      budget: { cap: [{ value: { gpuHours: 100, window: 'Month' }, source: { kind: 'Cap' } }] }
    },
    inherited: {},
    notes: [],
    changed: null,
    timeZone: 'Europe/Berlin'
  },
  ''
);

test.each([
  ['max', '500m', '0.5 GPU'],
  ['weight', 3, '3'],
  ['priority', { max: 5 }, '5'],
  ['models', [{ model: 'A100', max: '0' }], 'A100: 0 GPUs'],
  ['memory', '40Gi', '40 GiB'],
  ['memory', '1000', '1000 bytes'],
  ['idleTimeout', '1h30m', '1 h 30 min'],
  ['idleTimeout', 'unlimited', 'unlimited'],
  ['grace', '0s', 'at once'],
  ['remote', false, 'not allowed'],
  ['lendable', true, 'while they rest'],
  ['lendable', false, 'never'],
  ['budget', { gpuHours: '0.5', window: 'Day' }, '0.5 GPU-hours a day'],
  ['budget', { gpuHours: 'unlimited', window: 'Day' }, 'unlimited'],
  ['hours', [HOURS], 'Mon to Fri 08:00 to 20:00: 2 GPUs'],
  ['hours', [], 'none'],
  ['max', null, 'inherited'],
  ['weight', 'heavy', 'heavy'],
  ['newer', { a: 1 }, '{"a":1}']
])('%s %j in words', (name, value, text) => expect(fieldText(name, value, trans)).toBe(text));

test('days are named as briefly as possible', () => {
  expect(daysText(['Sun', 'Sat'], trans)).toBe('Sat, Sun');
  expect(daysText(['Wed', 'Mon'], trans)).toBe('Mon, Wed');
  expect(daysText(['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'], trans)).toBe('every day');
});

test('a change names its fields for people', () => {
  expect(changeTexts({ max: '1' }, { max: '1', grace: '10m' }, trans)).toEqual([
    'Grace: inherited → 10 min'
  ]);
  expect(changeTexts({ newer: 1 }, null, trans)).toEqual(['removed', 'newer: 1 → inherited']);
});

test('what holds is told with its source, for each value', () => {
  const source = 'set for group ml by root on 1 January';
  expect(told('max', details.effective, trans)).toEqual([{ value: '2 GPUs', source }]);
  expect(told('models', details.effective, trans)).toEqual([{ value: 'A100: 1 GPU', source }]);
  expect(told('hours', details.effective, trans)).toEqual([
    { value: 'Mon to Fri 08:00 to 20:00: 2 GPUs', source }
  ]);
  expect(told('budget', details.effective, trans)).toEqual([
    { value: '100 GPU-hours a month', source: 'the cap for everyone' }
  ]);
  expect(told('weight', details.effective, trans)).toEqual([
    { value: '1', source: 'as no limit is set' }
  ]);
});

test('each field has a name, help, and what is inherited', () => {
  for (const name of FIELDS) {
    expect(fieldLabel(name, trans)).not.toBe(name);
    expect(helpOf(name, 'UTC', trans)).toMatch(/\.$/);
  }
  expect(helpOf('hours', 'Europe/Berlin', trans)).toContain('Europe/Berlin');
  expect(choiceNames('max', details.inherited, trans).inherit).toBe('Inherit: unlimited');
  expect(choiceNames('max', details.effective, trans).inherit).toBe('Inherit: 2 GPUs');
});

test('an answer that does not fit is refused', () => {
  expect(() => readSubjectDetails({ ...details, effective: { weight: 'x' } }, '')).toThrow();
  expect(() => readSubjectDetails({ ...details, timeZone: 7 }, '')).toThrow("'timeZone'");
});

test('the object has names as text, and nothing that is inherited', () => {
  const text = manifest(
    'user-x',
    { kind: 'User', name: 'a"}\n- b', hub: '' },
    { max: '2', weight: null }
  );
  expect(text.split('\n').slice(-2)).toEqual([
    '  subject: {"kind":"User","name":"a\\"}\\n- b"}',
    '  max: "2"'
  ]);
});

test('the name of a namespace is one', () => {
  expect(readSubjectName('Namespace', 'Batch', trans)).toHaveProperty('error');
  expect(readSubjectName('Namespace', 'batch', trans)).toEqual({ value: 'batch' });
  expect(readSubjectName('User', ' a/b ', trans)).toEqual({ value: 'a/b' });
  expect(readSubjectName('User', ' ', trans)).toHaveProperty('error');
});
