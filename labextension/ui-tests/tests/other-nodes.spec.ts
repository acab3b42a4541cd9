/** GPUs of another node: a server with the cluster's backend, and a worker's pod, all on this machine. */
import { resolve } from 'path';
import { command, expect, Panel, test } from './fixtures';
import { Program } from './fronts';
import { JupyterServer } from './server';

const ROOT = resolve(__dirname, '..', '..', '..');
const DARK = 'JupyterLab Dark';

/** The words of `tests/worker/page.py`. */
interface IPods {
  readonly socket: string;
  readonly hub: string;
}

/** Say what the worker controller says of the worker; `worker`: its pod runs. */
const tell = (pods: Program, path: 'worker' | 'status', state: string, message = '') =>
  fetch(pods.url + path, {
    method: 'PUT',
    body: JSON.stringify({ w1: { state, message, tries: 1, since: 1700000000 } })
  });

test('a worker starts, is refused, and serves; its GPU is chosen with the tick and by keyboard; the own one is lent', async ({
  page
}) => {
  test.setTimeout(180_000);
  const pods = await new Program().start(port => ['-m', 'tests.worker.page', `${port}`], '', {
    PYTHONPATH: ROOT
  });
  const { socket, hub } = (await (await fetch(pods.url)).json()) as IPods;
  const server = new JupyterServer({
    args: [`--GpuExtension.hub_service=${hub}`],
    env: { JUPYTER_GPU_NODE_SOCKET: socket, JUPYTERHUB_API_TOKEN: 'x' }
  });
  const panel = new Panel(page, server);
  const tick = panel.root.getByRole('checkbox', { name: 'Also on other nodes' });
  const card = panel.root.getByRole('list', { name: 'Your GPUs on other nodes' });
  try {
    await server.start();
    await panel.open();

    // One GPU here, two on the other node.
    await expect(panel.slider).toHaveAttribute('aria-valuetext', '0 of 3 GPUs');
    await expect(tick).toBeChecked();
    // Models and memory of the other node can be chosen, too.
    const models = panel.root.getByRole('combobox', { name: 'GPU model' });
    await expect(models.locator('option')).toContainText(['Any model', '', 'NVIDIA H200']);
    await expect(
      panel.root.getByRole('textbox', { name: 'GPU memory, GiB' })
    ).toHaveAccessibleDescription('Up to 141 GiB, without a part of the time.');
    await panel.slider.focus();
    await page.keyboard.press('End');
    await expect(panel.sentence).toContainText('starting a worker on node2…');
    await expect(card).toContainText('Starting');
    expect(await panel.axe()).toEqual([]);
    await panel.shot('other-nodes-starting');

    await tell(pods, 'status', 'Refused', 'exceeded quota: gpus');
    await expect(card).toContainText('Refused');
    await expect(panel.sentence).toContainText('when the worker on node2 can start');
    await expect(panel.root.locator('.jp-gpu-Notes')).toContainText('exceeded quota');
    await expect(panel.button('Keep 1 GPU')).toBeVisible();
    expect(await panel.axe()).toEqual([]);
    await panel.shot('other-nodes-refused');

    await tell(pods, 'worker', 'Running');
    await expect(panel.sentence).toHaveText('3 of 3 GPUs attached: 1 here, 2 on node2');
    await expect(card).toContainText('Other node, same switch');
    await expect(card).toContainText('GPU 1');
    await expect(card).toContainText('30 %');
    await expect(card).toContainText('answers in');
    expect(await panel.axe()).toEqual([]);
    await panel.shot('other-nodes');
    await command(page, 'apputils:change-theme', { theme: DARK });
    await page.locator(`body[data-jp-theme-name="${DARK}"]`).waitFor({ state: 'attached' });
    expect(await panel.axe()).toEqual([]);
    await panel.shot('other-nodes-dark');

    // Without the tick the own node's GPU stays, and the slider ends there.
    await tick.focus();
    await page.keyboard.press('Space');
    await expect(tick).not.toBeChecked();
    await expect(panel.sentence).toHaveText('1 of 1 GPU attached');
    await expect(panel.slider).toHaveAttribute('aria-valuetext', '1 of 1 GPU');
    await expect(card).toContainText('Kept for a while');
    await page.keyboard.press('Space');
    await expect(tick).toBeChecked();
    await expect(panel.slider).toHaveAttribute('aria-valuetext', '1 of 3 GPUs');
    await page.reload();
    await expect(tick).toBeChecked();

    // Its own GPU may serve others while it rests.
    const lends = panel.root.getByRole('checkbox', { name: 'Lend while I rest' });
    await expect(lends).not.toBeChecked();
    await lends.focus();
    await page.keyboard.press('Space');
    await expect(panel.sentence).toContainText('GPU 0 lent while it rests');
    await expect(lends).toBeChecked();
    await expect(panel.root.getByText('keeps 60 GiB')).toBeVisible();
    expect(await panel.axe()).toEqual([]);
    await panel.shot('lent');
    await lends.press('Space');
    await expect(panel.sentence).not.toContainText('lent');
  } finally {
    await page.close(); // before what it talks to
    await server.dispose();
    await fetch(pods.url, { method: 'DELETE' });
    pods.dispose();
  }
});
