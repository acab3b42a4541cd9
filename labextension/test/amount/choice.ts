import { nullTranslator } from '@jupyterlab/translation';
import { act, ReactNode } from 'react';
import { createRoot, Root } from 'react-dom/client';
import { IRequest } from '../../src/api/request';
import { IView, parseView } from '../../src/api/view';
import { IGpuModel } from '../../src/model/tokens';
import { golden } from '../golden';

(globalThis as Record<string, unknown>).IS_REACT_ACT_ENVIRONMENT = true;

/** The properties of a part of the panel in which something is chosen. */
type IProps = ReturnType<typeof props>;

let root: Root;
let answers: (recorded: boolean) => void;

/** The requests that were made in this test. */
export const asked: IRequest[] = [];

beforeEach(() => {
  document.body.innerHTML = '<div></div>';
  root = createRoot(document.body.firstElementChild!);
  asked.length = 0;
});

afterEach(() => act(() => root.unmount()));

/** Return one of the golden views. */
export function goldenView(name: string): IView {
  return parseView(golden('views').find(one => one.name === name)!.view, 'view');
}

/** Show a part with a view. */
export function draw(
  part: (choice: IProps) => ReactNode,
  view: IView,
  wanted: number | null,
  disabled: boolean
): void {
  act(() => root.render(part(props(view, wanted, disabled))));
}

/** Answer the last request: it was recorded, or not. */
export function answer(recorded: boolean): Promise<void> {
  return act(() => {
    answers(recorded);
    return Promise.resolve();
  });
}

function props(view: IView, wanted: number | null, disabled: boolean) {
  const request = (made: IRequest) => {
    asked.push(made);
    return new Promise<boolean>(done => {
      answers = done;
    });
  };
  return {
    view,
    model: { wanted, request } as unknown as IGpuModel,
    disabled,
    trans: nullTranslator.load('jupyter_gpu')
  };
}
