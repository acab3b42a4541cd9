/** Watches the model for the end of waits, and shows notices. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { CommandIDs, NO_ARGUMENTS } from '../commands/commands';
import { loadWithRetries } from '../common/retry';
import { IGpuModel, IGpuSettings } from '../model/tokens';
import { follow, IFollowed } from './notices';

const load = () =>
  loadWithRetries('a message', () => import(/* webpackChunkName: "notify" */ './notify'));

/** Show notices as long as the page is open, and add the command for the desktop. */
export function watchWaits(
  app: JupyterFrontEnd,
  model: IGpuModel,
  settings: IGpuSettings,
  trans: TranslationBundle
): void {
  let before: IFollowed | null = null;
  let lastSeen = Date.now();
  document.addEventListener('visibilitychange', () => {
    lastSeen = Date.now(); // when it is hidden and when it is shown
  });
  model.changed.connect(() => {
    const { view } = model;
    if (!view) {
      return;
    }
    const { followed, notices } = follow(before, view, Date.now());
    before = followed;
    if (!notices.length || !settings.notify) {
      return;
    }
    const hidden = document.visibilityState === 'hidden';
    const options = {
      trans,
      place: app.serviceManager.serverSettings.baseUrl,
      desktop: settings.notifyOnDesktop,
      visibility: { hidden, open: model.watched || isPopoverOpen() },
      unseen: hidden ? Date.now() - lastSeen : 0,
      open: () => void app.commands.execute(CommandIDs.showPanel)
    };
    void load().then(loaded => notices.forEach(one => void loaded?.notify(one, view, options)));
  });
  app.commands.addCommand(CommandIDs.desktop, {
    label: trans.__('Tell on the Desktop When GPUs Are Here'),
    caption: trans.__('Have the browser show a message when a wait for GPUs is over'),
    isToggleable: true,
    isToggled: () => settings.notifyOnDesktop,
    describedBy: NO_ARGUMENTS,
    execute: async () => {
      const on = !settings.notifyOnDesktop;
      if (on) {
        await (await load())?.askOrSay(trans); // first: browsers allow this only right after a click
      }
      await settings.useDesktop(on);
    }
  });
  settings.changed.connect(() => app.commands.notifyCommandChanged(CommandIDs.desktop));
}

/** The popover is in the document only while it is open. */
const isPopoverOpen = () => document.getElementById('jupyter-gpu-popover') !== null;
