/** The GPUs that a server has, as cards with charts or as a table. Loaded when they are first seen. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import '../../style/gpus.css';
import { IView } from '../api/view';
import { IGpuModel, IGpuSettings } from '../model/tokens';
import { Cards, Table } from './cards';
import { RemoteCards } from './remote-card';

/** Properties of the section; `view` has at least one GPU or worker. */
export interface IGpusSectionProps {
  readonly model: IGpuModel;
  readonly settings: IGpuSettings;
  readonly view: IView;
  readonly trans: TranslationBundle;
}

/** The section of the panel; the default export, as React's lazy loading needs. */
export default function Gpus({
  model,
  settings,
  view,
  trans
}: IGpusSectionProps): React.JSX.Element {
  const Shown = settings.tableInsteadOfCharts ? Table : Cards;
  return (
    <section className="jp-gpu-Section" aria-label={trans.__('Your GPUs')}>
      <div className="jp-gpu-Section-head">
        <h3>{trans.__('Your GPUs')}</h3>
        <label className="jp-gpu-Toggle">
          <input
            type="checkbox"
            checked={settings.tableInsteadOfCharts}
            onChange={event => settings.showTable(event.target.checked)}
          />
          {trans.__('Show as table')}
        </label>
      </div>
      {view.gpus.length > 0 && (
        <Shown model={model} gpus={view.gpus} window={settings.chartWindow} trans={trans} />
      )}
      {view.workers.length > 0 && (
        <RemoteCards model={model} workers={view.workers} trans={trans} />
      )}
    </section>
  );
}
