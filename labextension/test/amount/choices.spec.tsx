/** @jest-environment jsdom */
import { nullTranslator } from '@jupyterlab/translation';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { MemoryField } from '../../src/amount/memory-field';
import { ModelChoice } from '../../src/amount/model-choice';
import { IRequest } from '../../src/api/request';
import { IView, parseView } from '../../src/api/view';
import { IGpuModel } from '../../src/model/tokens';
import { golden } from '../golden';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

const trans = nullTranslator.load('jupyter_gpu');
const GIB = 2 ** 30;
const of = (name: string): IView =>
  parseView(golden('views').find(one => one.name === name)!.view, 'view');
const NAMED = of('ready with a share and memory of its own');

let root: Root;
let asked: IRequest[];
let answer: (recorded: boolean) => void;

beforeEach(() => {
  document.body.innerHTML = '<div></div>';
  root = createRoot(document.body.firstElementChild!);
  asked = [];
});

afterEach(() => act(() => root.unmount()));

function show(view: IView, wanted: number | null = null, disabled = false): void {
  const request = (made: IRequest) => {
    asked.push(made);
    return new Promise<boolean>(done => {
      answer = done;
    });
  };
  const choice = {
    view,
    model: { wanted, request } as unknown as IGpuModel,
    disabled,
    trans
  };
  act(() =>
    root.render(
      <>
        <MemoryField {...choice} />
        <ModelChoice {...choice} />
      </>
    )
  );
}

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

const settle = (recorded: boolean) =>
  act(() => {
    answer(recorded);
    return Promise.resolve();
  });

test('they are there only where there is something to choose', () => {
  show(of('ready with a share'));
  expect(document.body.textContent).toBe('');
  show(of('idle, no GPU has time shares'));
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
  await settle(false);
  expect(field().value).toBe('40'); // it was not recorded
});

test('the part of the GPU is asked for by an empty field', async () => {
  show(NAMED, 500);
  enter('');
  expect(asked).toEqual([{ milli: 500, memory: null }]);
  expect(field().value).toBe('');
  await settle(true);
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
  const plain = of('ready with a share');
  show({ ...plain, requested: { ...NAMED.requested!, memory: null, model: ['h100', 'h200'] } });
  expect(list().value).toBe('h100 / h200');
  expect(list().options.length).toBe(2);
});

test('without a connection nothing can be chosen', () => {
  show(NAMED, null, true);
  expect([field().disabled, list().disabled]).toEqual([true, true]);
});
