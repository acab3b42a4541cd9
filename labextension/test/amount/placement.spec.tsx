/** @jest-environment jsdom */
import React, { act } from 'react';
import { Placement } from '../../src/amount/placement';
import { IView } from '../../src/api/view';
import { answer, asked, draw, goldenView } from './choice';

const TWO = goldenView('ready, one here and one on another node');

const show = (view: IView, wanted: number | null = null, disabled = false) =>
  draw(choice => <Placement {...choice} />, view, wanted, disabled);
const box = () => document.querySelector<HTMLInputElement>('input')!;
const click = () => act(() => box().click());

test('it is there only where other nodes serve the server', () => {
  show(goldenView('ready with two of four'));
  expect(document.body.textContent).toBe('');
  show(TWO);
  expect(document.body.textContent).toBe('Also on other nodes');
  expect(box().checked).toBe(true);
  show({ ...TWO, elsewhere: 0 });
  expect(box().checked).toBe(true); // it keeps the focus while a request is on its way
});

test('where a limit keeps the server on its node it is not there', () => {
  show({ ...TWO, elsewhere: 0 });
  expect(document.body.textContent).toBe('');
});

test('the request keeps what the own node could give, and shows at once', async () => {
  show(TWO);
  click();
  expect(asked).toEqual([{ milli: 1000, placement: 'local' }]);
  expect(box().checked).toBe(false);
  await answer(false);
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
