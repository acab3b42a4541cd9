import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { IGpu, IStranger } from '../../src/api/view';
import { Cards, Table } from '../../src/gpus/cards';
import { History } from '../../src/history/history';
import { IGpuModel } from '../../src/model/tokens';
import { state } from '../../src/words/gpu';
import { share } from '../share';

const NOW = 100_000;

/** The cards, or the table, of one GPU with `milli`, as first rendered. */
function cards(
  milli: number,
  strangers: readonly IStranger[] = [],
  Shown = Cards,
  idleSince: number | null = null,
  guest = false,
  keeps?: number,
  use: Parameters<typeof share>[0] = {}
): string {
  const history = new History(10);
  history.push({ time: NOW, gpus: new Map(), shares: new Map([['GPU-1', share(use)]]) });
  const model = { history, sampled: new Signal({}) } as unknown as IGpuModel;
  const gpu: IGpu = {
    uuid: 'GPU-1',
    index: 0,
    model: 'Test 80GB',
    memory: 80 * 2 ** 30,
    simulated: true,
    health: '',
    milli,
    state: 'attached',
    users: [],
    strangers,
    idleSince,
    guest,
    keeps
  };
  const trans = nullTranslator.load('jupyter_gpu');
  return renderToStaticMarkup(<Shown model={model} gpus={[gpu]} window={60} trans={trans} />);
}

test('the card of a time share shows its use, the card of a whole GPU does not', () => {
  expect(cards(250)).toContain('Guaranteed slice');
  expect(cards(250)).toContain('A quarter, shared');
  expect(cards(1000)).not.toContain('jp-gpu-Share');
  expect(cards(1000)).toContain('Whole GPU, exclusive');
});

test('a GPU that is lent is called so, and no part of it is called its own', () => {
  for (const Shown of [Cards, Table]) {
    const shown = cards(1, [], Shown, null, true);
    expect(shown).toContain('Lent while others rest: may pause at any moment');
    expect(shown).not.toContain('%, shared');
  }
});

test('the card of an owner says what it keeps, and what a guest has', () => {
  const busy = { guest: { busy: 0.404, memory: 12 * 2 ** 30 } };
  for (const Shown of [Cards, Table]) {
    const lent = cards(1000, [], Shown, null, false, 60 * 2 ** 30);
    expect(lent).toContain('Whole GPU, lent while it rests: keeps 60 GiB');
    expect(lent).not.toContain('exclusive');
    expect(lent).not.toContain('A guest');
    expect(cards(1000, [], Shown, null, false, 60 * 2 ** 30, busy)).toContain(
      'A guest has 40 % of the time and 12 GiB'
    );
    expect(cards(500, [], Shown, null, false, undefined, busy)).toContain('A guest has 40 %');
  }
});

test('a stranger on a GPU is shown, and the GPU is not called exclusive', () => {
  const alice = { pid: 123, command: 'python', user: 'alice' };
  const hidden = { pid: 0, command: 'a program', user: null };
  for (const Shown of [Cards, Table]) {
    const shown = cards(1000, [alice, hidden], Shown);
    expect(shown).toContain(
      'Also used by python (process 123, alice) and a program, which did not get it from jupyter-gpu'
    );
    expect(shown).toContain('Whole GPU');
    expect(shown).not.toContain('exclusive');
    expect(shown).not.toContain('Not open anywhere');
  }
  expect(cards(1000, [], Table)).toContain('Not open anywhere');
});

test.each([
  [NOW, '1 min'],
  [NOW - 12 * 60 - 59, '12 min'],
  [NOW - 125 * 60, '2 h 5 min'],
  [NOW + 3600, '1 min'] // another clock
])('a GPU that rests since %d says for how long', (since, time) => {
  for (const Shown of [Cards, Table]) {
    expect(cards(1000, [], Shown, since)).toContain(`Idle for ${time}: nothing runs on it`);
    expect(cards(1000, [], Shown)).not.toContain('Idle');
  }
});

test('a GPU that is parked or comes back is called so', () => {
  const trans = nullTranslator.load('jupyter_gpu');
  const parked = { bytes: 34 * 2 ** 30, since: NOW, back: 6 };
  expect(state({ state: 'attaching' }, trans)).toBe('Attaching');
  expect(state({ state: 'attaching', parked }, trans)).toBe('Parked');
  expect(state({ state: 'attaching', parked, returning: true }, trans)).toBe('Coming back');
  expect(state({ state: 'attached', parked }, trans)).toBe('Attached');
});
