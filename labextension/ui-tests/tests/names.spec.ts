/** Notebooks of one name: distinguished everywhere, and with their full path before a kernel is restarted. */
import { copyFileSync, mkdirSync } from 'fs';
import { join } from 'path';
import { Page } from '@playwright/test';
import { command, expect, kernelReady, test } from './fixtures';
import { JupyterServer } from './server';

/** Open `deep/<folder>/train.ipynb`, whose only cell is `source`, and run it until it prints `ready`. */
async function train(page: Page, server: JupyterServer, folder: string, source: string) {
  const path = `deep/${folder}/train.ipynb`;
  mkdirSync(join(server.work, 'deep', folder), { recursive: true });
  copyFileSync(join(__dirname, 'kernel', 'hold.py'), join(server.work, 'deep', folder, 'hold.py'));
  server.notebook(path, [source]);
  if (page.url() === 'about:blank') {
    await page.goto(server.page('lab?reset'));
    await page.locator('.jp-Launcher').waitFor();
  }
  await command(page, 'docmanager:open', { path });
  const notebook = page.locator('.jp-NotebookPanel').filter({ visible: true });
  await notebook.locator('.jp-CodeCell').first().waitFor();
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
  await expect(notebook.locator('.jp-OutputArea-output').first()).toContainText('holding');
}

/** Request a GPU, and have the notebook of each folder hold it. */
async function hold(page: Page, server: JupyterServer, ...folders: string[]) {
  await server.request(1);
  for (const folder of folders) {
    await train(page, server, folder, '%run hold.py');
  }
}

test('notebooks of one name are distinguished in the panel, and the dialog shows the full path', async ({
  page,
  panel,
  server
}) => {
  await hold(page, server, 'one', 'two');
  await panel.statusItem.click();
  await expect(panel.cards.first()).toContainText(
    /Open in (one|two)\/train\.ipynb and (one|two)\/train\.ipynb/
  );
  await panel.drag(0);
  await expect(panel.sentence).toContainText(
    /(one|two)\/train\.ipynb and (one|two)\/train\.ipynb still have it open/
  );
  await panel.button('Restart kernel of two/train.ipynb…').click();
  const dialog = page.locator('.jp-Dialog');
  await expect(dialog.getByText('Restart the kernel of two/train.ipynb?')).toBeVisible();
  await expect(dialog.getByText('Notebook deep/two/train.ipynb')).toBeVisible();
  const kernels = (await server.fetch('api/sessions')) as {
    path: string;
    kernel: { id: string };
  }[];
  const two = kernels.find(({ path }) => path === 'deep/two/train.ipynb')!;
  await expect(dialog.getByText(`Kernel python3, ${two.kernel.id}`)).toBeVisible();
  expect(await panel.axe('.jp-Dialog')).toEqual([]);
  await panel.shot('restart', true);
  await dialog.getByRole('button', { name: 'Restart' }).click();
  await expect(panel.sentence).toContainText('one/train.ipynb still has it open');
  await expect(panel.sentence).not.toContainText('two/train.ipynb');
});

test('a console and a kernel without a notebook have full names, too', async ({
  page,
  panel,
  server
}) => {
  await hold(page, server, 'one');
  const [session] = (await server.fetch('api/sessions')) as {
    id: string;
    kernel: { id: string };
  }[];
  await server.fetch('api/sessions', 'POST', {
    path: 'deep/console-1-6f2e',
    name: 'Console 1',
    type: 'console',
    kernel: session.kernel
  });
  await panel.statusItem.click();
  await panel.drag(0);
  await panel.button(/^Restart kernel of/).click();
  const dialog = page.locator('.jp-Dialog');
  await expect(dialog.getByRole('listitem')).toHaveText([
    'Notebook deep/one/train.ipynb',
    'Console 1, in deep',
    `Kernel python3, ${session.kernel.id}`
  ]);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
});

test('the notice about a block of code names the notebook that holds it', async ({
  page,
  panel,
  server
}) => {
  const block = (gpus: number) =>
    `from jupyter_gpu import gpu\nblock = gpu.at_least(${gpus})\nblock.__enter__()\nprint("holding")`;
  await train(page, server, 'one', block(2));
  await panel.statusItem.click();
  const notice = panel.root.locator('.jp-gpu-Notes');
  await expect(notice).toContainText(
    'train.ipynb holds 2 GPUs while it needs them (gpu.at_least, jupyter gpu run) and gives back what it took at its end.'
  );
  await train(page, server, 'two', block(2));
  await expect(notice).toContainText(
    'one/train.ipynb (2 GPUs) and two/train.ipynb (2 GPUs) hold 2 GPUs together'
  );
  await panel.shot('block');
  const sessions = (await server.fetch('api/sessions')) as { id: string; path: string }[];
  const one = sessions.find(({ path }) => path === 'deep/one/train.ipynb')!;
  await server.fetch(`api/sessions/${one.id}`, 'DELETE');
  await expect(notice).toContainText('train.ipynb holds 2 GPUs');
  await expect(notice).not.toContainText('one/train.ipynb');
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
});
