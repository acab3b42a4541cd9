/** The GPUs that a server has, as cards with charts or as a table. Loaded when they are first seen. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import '../../style/gpus.css';
import { IView } from '../api/view';
import { IGpuModel, IGpuSettings } from '../model/tokens';
import { Cards, Table } from './cards';

/** Properties of the section; `view` has at least one GPU. */
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
      <Shown model={model} gpus={view.gpus} window={settings.chartWindow} trans={trans} />
    </section>
  );
}
