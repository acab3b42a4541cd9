/** The choice whether other nodes may serve the request, where they serve this server. */
import React, { useRef } from 'react';
import { IChoiceProps, useChoice, wanted } from './choice';

/**
 * A tick; without it the amount is at most what the own node could ever give. It is not there where no other node serves
 * the server, such as where a limit keeps it on its node.
 */
export function Placement(props: IChoiceProps): React.JSX.Element | null {
  const { view, model, disabled, trans } = props;
  const { elsewhere, total, requested } = view;
  const stays = requested?.placement === 'local';
  const [anywhere, ask] = useChoice(model, !stays);
  const used = useRef(false); // once it was there it stays, as `elsewhere` follows a click with a delay
  used.current ||= !!elsewhere || stays;
  if (elsewhere === null || !used.current) {
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
