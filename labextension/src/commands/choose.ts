/** The question for another number of GPUs; loaded when it is asked. */
import { InputDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IGpuModel } from '../model/tokens';
import { gpus } from '../words/sentence';

/** Ask for one of the amounts that the slider has; `null`: nothing was chosen. */
export async function choose(model: IGpuModel, trans: TranslationBundle): Promise<number | null> {
  const view = model.view;
  if (!view) {
    return null;
  }
  const labels = view.steps.map(step => gpus(step, trans));
  const answer = await InputDialog.getItem({
    title: trans.__('Change the number of GPUs'),
    label: trans.__('GPUs for this server'),
    items: labels,
    current: Math.max(0, view.steps.indexOf(view.amounts.requested)),
    okLabel: trans.__('Change')
  });
  const index = labels.indexOf(answer.value ?? '');
  return answer.button.accept && index >= 0 ? view.steps[index] : null;
}
