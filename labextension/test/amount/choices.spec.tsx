/** @jest-environment jsdom */
import React, { act } from 'react';
import { MemoryField } from '../../src/amount/memory-field';
import { ModelChoice } from '../../src/amount/model-choice';
import { IView } from '../../src/api/view';
import { answer, asked, draw, goldenView } from './choice';

const GIB = 2 ** 30;
const NAMED = goldenView('ready with a share and memory of its own');

const show = (view: IView, wanted: number | null = null, disabled = false) =>
  draw(
    choice => (
      <>
        <MemoryField {...choice} />
        <ModelChoice {...choice} />
      </>
    ),
    view,
    wanted,
    disabled
  );

const field = () => document.querySelector<HTMLInputElement>('input')!;
const list = () => document.querySelector<HTMLSelectElement>('select')!;

/** Set the value as a browser does: behind React's back, then the event. */
function set(node: HTMLInputElement | HTMLSelectElement, value: string): void {
  const kind = node instanceof HTMLInputElement ? HTMLInputElement : HTMLSelectElement;
  act(() => {
    Object.getOwnPropertyDescriptor(kind.prototype, 'value')!.set!.call(node, value);
    node.dispatchEvent(
      new Event(kind === HTMLInputElement ? 'input' : 'change', { bubbles: true })
    );
  });
}

function enter(typed: string): void {
  set(field(), typed);
  act(() => {
    field().dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
  });
}

test('they are there only where there is something to choose', () => {
  show(goldenView('ready with a share'));
  expect(document.body.textContent).toBe('');
  show(goldenView('idle, no GPU has time shares'));
  expect(document.body.textContent).toBe('');
});

test('the field has a name, its bounds, and shows what was asked for in GiB', () => {
  show(NAMED);
  expect(field().value).toBe('40');
  expect(field().labels![0].textContent).toBe('GPU memory, GiB');
  const hint = document.getElementById(field().getAttribute('aria-describedby')!)!;
  expect(hint.textContent).toBe('Of each share, up to 60 GiB. Empty: its part, 20 GiB.');
  expect(field().dataset.lmSuppressShortcuts).toBe('true');
});

test('another amount is asked for beside the GPUs, and shows at once', async () => {
  show(NAMED);
  enter('50');
  expect(asked).toEqual([{ milli: 250, memory: 50 * GIB }]);
  expect(field().value).toBe('50');
  await answer(false);
  expect(field().value).toBe('40'); // it was not recorded
});

test('the part of the GPU is asked for by an empty field', async () => {
  show(NAMED, 500);
  enter('');
  expect(asked).toEqual([{ milli: 500, memory: null }]);
  expect(field().value).toBe('');
  await answer(true);
});

test('without GPUs it is memory alone, also what is kept from before', () => {
  show({ ...NAMED, amounts: { ...NAMED.amounts, requested: 0 } });
  set(field(), '4');
  enter('40');
  expect(asked).toEqual([{ milli: 1, memory: 40 * GIB }]);
});

test('what is no amount, or too much, is said and not asked for; Escape brings back the old one', () => {
  show(NAMED);
  enter('61');
  const alert = document.querySelector('[role=alert]')!;
  expect(alert.textContent).toBe('Type a number of GiB, up to 60 GiB, or nothing.');
  expect(field().getAttribute('aria-invalid')).toBe('true');
  expect(field().getAttribute('aria-errormessage')).toBe(alert.id);
  act(() => {
    field().dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));
  });
  expect(field().value).toBe('40');
  enter('40');
  expect(asked).toEqual([]);
});

test('a model is chosen beside the GPUs, and taken back', () => {
  show(NAMED);
  expect(list().value).toBe('NVIDIA H100');
  expect([...list().options].map(one => one.text)).toEqual([
    'Any model',
    'NVIDIA H100',
    'NVIDIA A100'
  ]);
  expect(list().labels[0].textContent).toBe('GPU model');
  set(list(), 'NVIDIA A100');
  expect(list().value).toBe('NVIDIA A100');
  set(list(), '');
  expect(asked).toEqual([
    { milli: 250, model: ['NVIDIA A100'] },
    { milli: 250, model: null }
  ]);
});

test('models that code asked for in other words are there while they are chosen', () => {
  const plain = goldenView('ready with a share');
  show({ ...plain, requested: { ...NAMED.requested!, memory: null, model: ['h100', 'h200'] } });
  expect(list().value).toBe('h100 / h200');
  expect(list().options.length).toBe(2);
});

test('without a connection nothing can be chosen', () => {
  show(NAMED, null, true);
  expect([field().disabled, list().disabled]).toEqual([true, true]);
});
