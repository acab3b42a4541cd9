/** `GPU 1/4`: a button for small spaces. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IView } from '../api/view';
import { useSignal } from '../common/react';
import { IGpuModel } from '../model/tokens';
import { formatGpus } from '../words/quantity';
import { sentence } from '../words/sentence';

/** Properties of the button, with those of any button. */
export interface IIndicatorProps extends React.ButtonHTMLAttributes<HTMLButtonElement> {
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
  readonly buttonRef?: React.Ref<HTMLButtonElement>;
}

/** The attached amount; its label says more. */
export function Indicator({
  model,
  trans,
  buttonRef,
  ...button
}: IIndicatorProps): React.JSX.Element {
  useSignal(model.changed);
  const { view, connection } = model;
  const lost = connection.state !== 'online';
  const title = lost
    ? trans.__('GPUs: not connected to the server')
    : view
      ? describe(view, trans)
      : trans.__('GPUs');
  return (
    <button ref={buttonRef} type="button" title={title} aria-label={title} {...button}>
      {view && !lost ? brief(view, trans) : trans.__('GPU –')}
    </button>
  );
}

/** `GPU 1/4`, with a mark while something is going on. */
function brief(view: IView, trans: TranslationBundle): string {
  const mark = view.settled ? '' : '…';
  return trans.__('GPU %1/%2%3', formatGpus(view.amounts.attached), formatGpus(view.limit), mark);
}

function describe(view: IView, trans: TranslationBundle): string {
  const marks = [
    view.simulated ? trans.__('simulated') : '',
    view.mode === 'soft' ? trans.__('soft mode') : ''
  ].filter(Boolean);
  const now = trans.__('GPUs of this server: %1', sentence(view, trans));
  return marks.length ? `${now} (${marks.join(', ')})` : now;
}
