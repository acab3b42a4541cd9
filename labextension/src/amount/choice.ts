/** The choices of a request beside its amount. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { useState } from 'react';
import { IRequest } from '../api/request';
import { IView } from '../api/view';
import { IGpuModel } from '../model/tokens';

/** Properties of a choice. */
export interface IChoiceProps {
  readonly view: IView;
  readonly model: IGpuModel;
  readonly disabled: boolean;
  readonly trans: TranslationBundle;
}

/** The milli that are asked for: a choice keeps them. */
export const wanted = ({ view, model }: IChoiceProps): number =>
  model.wanted ?? view.amounts.requested;

/** The value to show, which is what was just chosen until the server has answered, and a function that chooses. */
export function useChoice<T>(
  model: IGpuModel,
  recorded: T
): [T, (value: T, request: IRequest) => void] {
  const [chosen, choose] = useState<{ readonly value: T } | null>(null);
  const ask = (value: T, request: IRequest) => {
    choose({ value });
    void model.request(request).then(() => choose(null));
  };
  return [chosen ? chosen.value : recorded, ask];
}
