/** The item of the status bar: `GPU 1/4`. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IGpuModel } from '../model/tokens';
import { Indicator } from './indicator';

/** Shows the attached amount; a click opens the panel. */
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
    return <Indicator model={this.model} trans={this.trans} onClick={this.open} />;
  }
}
