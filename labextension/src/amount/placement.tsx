/** The choice whether other nodes may serve the request, where they serve this server. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useState } from 'react';
import { IView } from '../api/view';
import { IGpuModel } from '../model/tokens';

/** Properties of the choice. */
export interface IPlacementProps {
  readonly view: IView;
  readonly model: IGpuModel;
  readonly disabled: boolean;
  readonly trans: TranslationBundle;
}

/** A tick; without it the amount is at most what the own node could ever give. */
export function Placement(props: IPlacementProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const [chosen, choose] = useState<boolean | null>(null);
  const { elsewhere, total, requested, amounts } = view;
  if (elsewhere === null) {
    return null;
  }
  const wanted = model.wanted ?? amounts.requested;
  const allow = (anywhere: boolean) => {
    choose(anywhere); // the server has not answered yet
    void model
      .request(
        anywhere
          ? { milli: wanted, placement: 'any' }
          : { milli: Math.min(wanted, total - elsewhere), placement: 'local' }
      )
      .then(() => choose(null));
  };
  return (
    <label className="jp-gpu-Toggle jp-gpu-Placement">
      <input
        type="checkbox"
        checked={chosen ?? requested?.placement !== 'local'}
        disabled={disabled}
        onChange={event => allow(event.target.checked)}
      />
      {trans.__('Also on other nodes')}
    </label>
  );
}
