import { nullTranslator } from '@jupyterlab/translation';
import { IView, parseView } from '../../src/api/view';
import {
  describeMemory,
  formatGib,
  memoryRequest,
  mostMemory,
  parseGib
} from '../../src/words/memory';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');
const GIB = 2 ** 30;
const of = (name: string): IView =>
  parseView(golden('views').find(one => one.name === name)!.view, 'view');
const NAMED = of('ready with a share and memory of its own');
const { requested, userLimit } = NAMED;
const FREE = { ...NAMED, userLimit: null };

test.each<[string, IView, number | null]>([
  ['the limit', NAMED, 60],
  ['the GPUs of the model', FREE, 80],
  ['the model', { ...FREE, requested: { ...requested!, model: ['NVIDIA A100'] } }, 40],
  [
    'the largest, if code named a model in other words',
    { ...FREE, requested: { ...requested!, model: ['a100'] } },
    80
  ],
  [
    'the GPUs, where the limit is above',
    { ...FREE, userLimit: { ...userLimit!, memory: null } },
    80
  ],
  ['nothing where it is not enforced', of('ready with a share'), null],
  ['nothing while no GPU is known', { ...NAMED, kinds: [] }, null],
  [
    'GPUs of other nodes, where there are none here',
    { ...FREE, kinds: [], kindsElsewhere: FREE.kinds },
    80
  ],
  ['the largest of both', { ...FREE, kindsElsewhere: [{ ...FREE.kinds[0], memory: 90 * GIB }] }, 90]
])('the field ends at: %s', (_, view, most) => {
  expect(mostMemory(view)).toBe(most === null ? null : most * GIB);
});

test('memory that code asked for can be taken back where it is not enforced', () => {
  const kinds = NAMED.kinds.map(kind => ({ ...kind, gate: false }));
  expect(mostMemory({ ...NAMED, kinds })).toBe(60 * GIB);
  expect(mostMemory({ ...NAMED, kinds, requested: null })).toBeNull();
});

test.each([
  [0, 'Up to 80 GiB, without a part of the time.'],
  [1, 'Up to 80 GiB, without a part of the time.'],
  [300, 'Of each share, up to 80 GiB. Empty: its part, 24 GiB.'],
  [500, 'Of each share, up to 80 GiB. Empty: its part, 20 GiB.'], // two, as code cut them
  [1750, 'Of each share, up to 80 GiB. Empty: its part, 20 GiB.'],
  [1000, 'Of each share, up to 80 GiB. Empty: its part, 20 GiB.'],
  [2000, 'Of each share, up to 80 GiB. Empty: its part, 20 GiB.']
])('the hint says what it means beside %d milli in shares of 250', (milli, hint) => {
  expect(describeMemory(NAMED, milli, 80 * GIB, trans)).toBe(hint);
});

test('the hint for whole GPUs, and where GPUs differ', () => {
  const any = { ...NAMED, requested: null };
  expect(describeMemory(any, 2000, 80 * GIB, trans)).toBe(
    'At least, of each GPU; up to 80 GiB. Empty: any.'
  );
  expect(describeMemory(any, 1500, 80 * GIB, trans)).toBe(
    'Of each share, up to 80 GiB. Empty: its part, 40 GiB / 20 GiB.'
  );
});

test('without GPUs memory alone is asked for, and without that nothing is left', () => {
  expect(memoryRequest(40 * GIB, 250)).toEqual({ milli: 250, memory: 40 * GIB });
  expect(memoryRequest(40 * GIB, 0)).toEqual({ milli: 1, memory: 40 * GIB });
  expect(memoryRequest(20 * GIB, 1)).toEqual({ milli: 1, memory: 20 * GIB });
  expect(memoryRequest(0, 1)).toEqual({ milli: 0, memory: null });
  expect(memoryRequest(0, 250)).toEqual({ milli: 250, memory: null });
});

test.each([
  ['40', 40],
  [' 0,5 ', 0.5],
  ['80', 80],
  ['', 0],
  ['0', 0],
  ['81', null],
  ['-1', null],
  ['40 GiB', null],
  ['1e3', null]
])('%j of 80 GiB is %j', (typed, gib) => {
  expect(parseGib(typed, 80 * GIB)).toBe(gib === null ? null : gib * GIB);
});

test('what is shown is read back', () => {
  expect([40 * GIB, GIB / 2, 20e9].map(formatGib)).toEqual(['40', '0.5', '18.626']);
});
