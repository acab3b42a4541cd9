/** @jest-environment jsdom */
import { nullTranslator } from '@jupyterlab/translation';
import React, { act } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { Placement } from '../../src/amount/placement';
import { IRequest } from '../../src/api/request';
import { IView, parseView } from '../../src/api/view';
import { IGpuModel } from '../../src/model/tokens';
import { golden } from '../golden';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

const trans = nullTranslator.load('jupyter_gpu');
const of = (name: string): IView =>
  parseView(golden('views').find(one => one.name === name)!.view, 'view');
const TWO = of('ready, one here and one on another node');

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
  const model = { wanted, request } as unknown as IGpuModel;
  act(() => root.render(<Placement view={view} model={model} disabled={disabled} trans={trans} />));
}

const box = () => document.querySelector<HTMLInputElement>('input')!;
const click = () => act(() => box().click());

test('it is there only where other nodes serve the server', () => {
  show(of('ready with two of four'));
  expect(document.body.textContent).toBe('');
  show(TWO);
  expect(document.body.textContent).toBe('Also on other nodes');
  expect(box().checked).toBe(true);
});

test('the request keeps what the own node could give, and shows at once', async () => {
  show(TWO);
  click();
  expect(asked).toEqual([{ milli: 1000, placement: 'local' }]);
  expect(box().checked).toBe(false);
  await act(() => {
    answer(false);
    return Promise.resolve();
  });
  expect(box().checked).toBe(true); // it was not recorded
});

test('where the request says local, it has no tick; with one the amount stays', () => {
  show({ ...TWO, requested: { ...TWO.requested!, placement: 'local' }, elsewhere: 0 }, 3000);
  expect(box().checked).toBe(false);
  click();
  expect(asked).toEqual([{ milli: 3000, placement: 'any' }]);
});

test('without a connection nothing can be chosen', () => {
  show(TWO, null, true);
  click();
  expect(asked).toEqual([]);
});
