/** The choice whether other nodes may serve the request, where they serve this server. */
import React from 'react';
import { IChoiceProps, useChoice, wanted } from './choice';

/** A tick; without it the amount is at most what the own node could ever give. */
export function Placement(props: IChoiceProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const { elsewhere, total, requested } = view;
  const [anywhere, ask] = useChoice(model, requested?.placement !== 'local');
  if (elsewhere === null) {
    return null;
  }
  const milli = wanted(props);
  return (
    <label className="jp-gpu-Toggle jp-gpu-Placement">
      <input
        type="checkbox"
        checked={anywhere}
        disabled={disabled}
        onChange={({ target: { checked } }) =>
          ask(
            checked,
            checked
              ? { milli, placement: 'any' }
              : { milli: Math.min(milli, total - elsewhere), placement: 'local' }
          )
        }
      />
      {trans.__('Also on other nodes')}
    </label>
  );
}
