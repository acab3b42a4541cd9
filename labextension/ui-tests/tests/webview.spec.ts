/** The slider in a page that may talk to no server, as in VS Code: through the kernel, which may be busy, restart or die. */
import AxeBuilder from '@axe-core/playwright';
import { BrowserContext, Page } from '@playwright/test';
import { expect, test } from './fixtures';
import { startKernel, Webview } from './fronts';
import { JupyterServer } from './server';

const WIDGET = 'from jupyter_gpu import gpu\ngpu';

const of = (page: Page) => ({
  slider: page.getByRole('slider', { name: 'GPUs for the kernel’s server' }),
  line: page.getByRole('status'),
  alert: page.getByRole('alert')
});

/** A page with the slider, and its parts. */
async function openWidget(context: BrowserContext, server: JupyterServer) {
  await server.reset();
  const webview = new Webview(context, server, await startKernel(server));
  await webview.open(WIDGET);
  const parts = of(webview.page);
  await expect(parts.line).toHaveText('0 of 4 GPUs attached (simulated)');
  return { webview, ...parts };
}

test.use({ allowed: async ({}, use) => use([/favicon/, /status of 404/]) });

test('works through the kernel alone, and explains a wait while a cell runs', async ({
  context,
  server
}) => {
  const { webview, slider, line, alert } = await openWidget(context, server);
  await slider.press('End');
  await expect(line).toHaveText('4 of 4 GPUs attached (simulated)');
  await server.see('four', view => view.amounts.attached === 4000);
  // It follows other requests, also while the kernel runs a cell.
  await webview.run('import time; time.sleep(14)');
  await server.request(1);
  await expect(line).toHaveText('1 of 4 GPUs attached (simulated)');
  await expect(slider).toHaveAttribute('aria-valuetext', '1 of 4 GPUs');
  await slider.press('End');
  await expect(alert).toHaveText('The kernel is busy. It asks for that when its cell ends.');
  await expect(line).toHaveText('4 of 4 GPUs attached (simulated)', { timeout: 30_000 });
  await expect(alert).toBeHidden();
  const { violations } = await new AxeBuilder({ page: webview.page }).include('main').analyze();
  expect(violations.map(one => one.id)).toEqual([]);
});

test('a killed kernel is reported within ten seconds, with what to do', async ({
  context,
  server
}) => {
  const { webview, slider, alert } = await openWidget(context, server);
  await server.fetch(`api/kernels/${webview.kernel}`, 'DELETE');
  await expect(alert).toHaveText(
    'The kernel does not answer. If it was restarted or has ended, run this cell again.',
    { timeout: 12_000 }
  );
  await slider.press('End'); // a request is not swallowed
  await expect(alert).toContainText('The kernel does not answer.');
  await expect(webview.page.getByRole('button', { name: 'Try again' })).toBeVisible();
  await expect(slider).toHaveAttribute('aria-valuetext', '0 of 4 GPUs', { timeout: 15_000 });
});

test('a server that restarts is reported, and the slider continues', async ({ context }) => {
  test.setTimeout(120_000);
  // The kernel is of one server, the GPUs are of another one.
  const gpus = await new JupyterServer({ gpus: 2 }).start();
  const kernels = await new JupyterServer({ gpus: 4 }).start();
  try {
    const webview = new Webview(context, kernels, await startKernel(kernels));
    const connect = `gpu.connect("${gpus.url}", "${gpus.token}")`;
    await webview.open(`from jupyter_gpu import gpu\n${connect}\ngpu`);
    const { slider, line, alert } = of(webview.page);
    await expect(line).toHaveText('0 of 2 GPUs attached (simulated)');
    await gpus.kill();
    await expect(alert).toContainText('does not answer');
    await gpus.restart();
    await expect(alert).toBeHidden({ timeout: 30_000 });
    await slider.press('End');
    await expect(line).toHaveText('2 of 2 GPUs attached (simulated)');
  } finally {
    await kernels.dispose();
    await gpus.dispose();
  }
});
