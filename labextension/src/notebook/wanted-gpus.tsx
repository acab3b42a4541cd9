/** The GPUs that a notebook wants, with buttons: in the popover and in the panel. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IView } from '../api/view';
import { useSignal } from '../common/react';
import { IGpuModel } from '../model/tokens';
import { gpus } from '../words/sentence';
import { NotebookWants } from './notebook';
import { asked, describe, offer } from './wants';

/** Properties of the section. */
export interface IWantedGpusProps {
  readonly notebook: NotebookWants;
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
}

/** The section; nothing if there is nothing to show or to remember. */
export function WantedGpus({ notebook, model, trans }: IWantedGpusProps): React.JSX.Element | null {
  useSignal(notebook.changed);
  useSignal(model.changed);
  const { view } = model;
  if (!view || view.total === 0) {
    return null;
  }
  const wants = notebook.value;
  const text = says(wants, view, trans);
  const known = wants && 'milli' in wants ? wants : null;
  const request = known && offer(known, view);
  const now = asked(view);
  const differs =
    now.milli > 0 &&
    (known?.milli !== now.milli ||
      (typeof known.memory !== 'string' && known.memory !== now.memory));
  const disabled = model.connection.state !== 'online';
  if (!text && !(differs && notebook.writable)) {
    return null;
  }
  return (
    <section className="jp-gpu-Section jp-gpu-Wanted" aria-label={trans.__('This notebook')}>
      {text && <p>{text}</p>}
      <div className="jp-gpu-Buttons">
        {request && (
          <button
            className="jp-gpu-Button"
            disabled={disabled}
            onClick={() => void model.request(request)}
          >
            {trans.__('Take %1', gpus(request.milli, trans))}
          </button>
        )}
        {differs && notebook.writable && (
          <button className="jp-gpu-Button" onClick={() => notebook.set(now)}>
            {trans.__('Remember %1 in this notebook', gpus(now.milli, trans))}
          </button>
        )}
        {wants && notebook.writable && (
          <button className="jp-gpu-Button" onClick={() => notebook.set(null)}>
            {trans.__('Forget what it wants')}
          </button>
        )}
      </div>
    </section>
  );
}

function says(wants: NotebookWants['value'], view: IView, trans: TranslationBundle): string | null {
  if (!wants) {
    return null;
  }
  if ('problem' in wants) {
    return trans.__(
      'What this notebook says of the GPUs that it wants is not understood, and ignored: %1',
      wants.problem
    );
  }
  const text = describe(wants, trans);
  return wants.milli > view.limit
    ? trans.__('This notebook wants %1; your limit is %2.', text, gpus(view.limit, trans))
    : trans.__('This notebook wants %1.', text);
}
