/** @jest-environment jsdom */
import React, { act } from 'react';
import { Lending } from '../../src/amount/lending';
import { IView } from '../../src/api/view';
import { answer, asked, draw, goldenView } from './choice';

const LENT = goldenView('ready, lent while it rests');

const show = (view: IView, wanted: number | null = null, disabled = false) =>
  draw(choice => <Lending {...choice} />, view, wanted, disabled);
const box = () => document.querySelector<HTMLInputElement>('input')!;
const click = () => act(() => box().click());

test('it is there only where the request says whether GPUs are lent', () => {
  show(goldenView('ready with two of four'));
  expect(document.body.textContent).toBe('');
  show(LENT);
  expect(document.body.textContent).toBe('Lend while I rest');
  expect(box().checked).toBe(true);
});

test('the request keeps its amount, and shows at once', async () => {
  show(LENT);
  click();
  expect(asked).toEqual([{ milli: 1000, lendable: false }]);
  expect(box().checked).toBe(false);
  await answer(false);
  expect(box().checked).toBe(true); // it was not recorded
});

test('without a tick nothing is lent; the amount that was just chosen stays', () => {
  show({ ...LENT, lendable: false }, 3000);
  expect(box().checked).toBe(false);
  click();
  expect(asked).toEqual([{ milli: 3000, lendable: true }]);
});

test('without a connection nothing can be chosen', () => {
  show(LENT, null, true);
  click();
  expect(asked).toEqual([]);
});
