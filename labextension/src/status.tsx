/** The item of the status bar: `GPU 1/4`. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IView } from './api';
import { formatGpus } from './quantity';
import { useSignal } from './react';
import { sentence } from './sentence';
import { IGpuModel } from './tokens';

/** Shows what is attached; a click opens the panel. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly model: IGpuModel,
    private readonly trans: TranslationBundle,
    private readonly open: () => void
  ) {
    super();
    this.addClass('jp-gpu-StatusItem');
  }

  protected render(): React.JSX.Element {
    return <Item model={this.model} trans={this.trans} open={this.open} />;
  }
}

interface IItemProps {
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
  readonly open: () => void;
}

function Item({ model, trans, open }: IItemProps): React.JSX.Element {
  useSignal(model.changed);
  const { view, connection } = model;
  const lost = connection.state !== 'online';
  const title = lost
    ? trans.__('GPUs: not connected to the server')
    : view
      ? describe(view, trans)
      : trans.__('GPUs');
  return (
    <button title={title} aria-label={title} onClick={open}>
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
  const now = trans.__('GPUs: %1', sentence(view, trans));
  return marks.length ? `${now} (${marks.join(', ')})` : now;
}
