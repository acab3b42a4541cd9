/** A notebook that was saved with a slider, opened later: it has no names, and says that it has no kernel. */
import { execFileSync } from 'child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'fs';
import { join, resolve } from 'path';
import { command, expect, kernelReady, test } from './fixtures';
import { JupyterServer } from './server';

const JUPYTER = resolve(__dirname, '..', '..', '..', '.venv', 'bin', 'jupyter');

test('a saved notebook reveals no other notebook when another server opens it', async ({
  page
}) => {
  test.setTimeout(180_000);
  const server = await new JupyterServer().start();
  const other = await new JupyterServer({ gpus: 2 }).start();
  try {
    await server.request(2);
    // Another notebook keeps a GPU open that is given back: live, the slider names it.
    copyFileSync(join(__dirname, 'kernel', 'hold.py'), join(server.work, 'hold.py'));
    server.notebook('secret-project.ipynb', ['%run hold.py']);
    await page.goto(server.page('lab/tree/secret-project.ipynb?reset'));
    await kernelReady(page);
    await command(page, 'notebook:run-all-cells');
    await expect(page.locator('.jp-OutputArea-output').first()).toContainText('holding 2');
    await server.request(0);
    server.notebook('open.ipynb', ['from jupyter_gpu import gpu\ngpu']);
    await page.goto(server.page('lab/tree/open.ipynb?reset'));
    await kernelReady(page);
    await command(page, 'notebook:run-all-cells');
    const cell = page.locator('.jp-OutputArea:visible').first();
    await expect(cell.getByRole('status').first()).toContainText(
      'secret-project.ipynb still has them open'
    );
    await command(page, '@jupyter-widgets/jupyterlab-manager:saveWidgetState');
    const path = join(server.work, 'open.ipynb');
    await expect
      .poll(async () => {
        await command(page, 'docmanager:save');
        return readFileSync(path, 'utf-8');
      })
      .toContain('application/vnd.jupyter.widget-state+json');
    const saved = readFileSync(path, 'utf-8');
    for (const word of ['secret-project', server.token, '127.0.0.1', 'hold.py', server.folder]) {
      expect(saved.includes(word), word).toBe(false);
    }
    expect(saved).toContain('GPU: giving back GPUs 0 and 1…');

    // nbconvert's page has the line, and sends no request.
    const html = execFileSync(JUPYTER, ['nbconvert', '--to', 'html', '--stdout', path], {
      encoding: 'utf-8',
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, HOME: server.folder }
    });
    expect(html).toContain('jp-gpu-InCell');
    expect(html).not.toContain('secret-project');

    // Elsewhere, opened by another user: the line of text.
    const copy = join(other.work, 'open.ipynb');
    writeFileSync(copy, saved);
    await page.goto(other.page('lab/tree/open.ipynb?reset'));
    await kernelReady(page);
    await expect(page.locator('.jp-OutputArea:visible').first()).toContainText(
      'GPU: giving back GPUs 0 and 1…'
    );

    // Opened by its owner: the slider, without that server's GPUs.
    const home = { HOME: other.folder, JUPYTER_DATA_DIR: join(other.folder, 'data') };
    execFileSync(JUPYTER, ['trust', copy], { env: { ...process.env, ...home }, stdio: 'ignore' });
    await page.reload();
    await kernelReady(page);
    const later = page.locator('.jp-OutputArea:visible').first();
    const alert = later.getByRole('alert');
    await expect(alert).toHaveText(
      'No kernel answers here. Run this cell again, or wait if its kernel is busy.',
      { timeout: 20_000 }
    );
    await expect(later.getByRole('slider')).toBeDisabled();
    await expect(later.getByRole('status').first()).toHaveText('Last known: 0 of 4 GPUs attached');
    await command(page, 'notebook:run-all-cells');
    await expect(page.locator('.jp-OutputArea:visible').getByRole('slider')).toHaveAttribute(
      'aria-valuetext',
      '0 of 2 GPUs'
    );
  } finally {
    await page.close();
    await other.dispose();
    await server.dispose();
  }
});
