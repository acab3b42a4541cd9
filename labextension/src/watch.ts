/** Hears of the end of waits from the model, and has it said. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { CommandIDs } from './commands';
import { follow, IFollowed } from './news';
import { patiently } from './patiently';
import { IGpuModel, IGpuSettings } from './tokens';

const load = () =>
  patiently('a message', () => import(/* webpackChunkName: "notify" */ './notify'));

/** Say what becomes of waits for GPUs as long as the page is there, and add the command for the desktop. */
export function watchWaits(
  app: JupyterFrontEnd,
  model: IGpuModel,
  settings: IGpuSettings,
  trans: TranslationBundle
): void {
  let before: IFollowed | null = null;
  let lastSeen = Date.now();
  document.addEventListener('visibilitychange', () => {
    lastSeen = Date.now(); // at both turns
  });
  model.changed.connect(() => {
    const { view } = model;
    if (!view) {
      return;
    }
    const { followed, news } = follow(before, view, Date.now());
    before = followed;
    if (!news.length || !settings.notify) {
      return;
    }
    const hidden = document.visibilityState === 'hidden';
    const options = {
      trans,
      place: app.serviceManager.serverSettings.baseUrl,
      desktop: settings.notifyOnDesktop,
      sight: { hidden, open: model.watched || isPopoverOpen() },
      unseen: hidden ? Date.now() - lastSeen : 0,
      open: () => void app.commands.execute(CommandIDs.showPanel)
    };
    void load().then(loaded => news.forEach(one => void loaded?.notify(one, view, options)));
  });
  app.commands.addCommand(CommandIDs.desktop, {
    label: trans.__('Tell on the Desktop When GPUs Are Here'),
    caption: trans.__('Have the browser show a message when a wait for GPUs is over'),
    isToggleable: true,
    isToggled: () => settings.notifyOnDesktop,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const on = !settings.notifyOnDesktop;
      if (on) {
        await (await load())?.askOrSay(trans); // first: browsers let a page ask only just after a click
      }
      await settings.useDesktop(on);
    }
  });
  settings.changed.connect(() => app.commands.notifyCommandChanged(CommandIDs.desktop));
}

/** It is in the document only while it is open. */
const isPopoverOpen = () => document.getElementById('jupyter-gpu-popover') !== null;
