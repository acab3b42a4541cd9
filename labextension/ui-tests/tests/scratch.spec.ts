import { test } from '@playwright/test';
import { JupyterServer } from './server';
test('scratch', async ({ page }) => {
  const server = await new JupyterServer().start();
  try {
    page.on('console', m => console.log(m.type(), m.text()));
    console.log(JSON.stringify(await server.view()));
    server.notebook('analysis.ipynb', ['print(1)']);
    await page.goto(server.page('lab/tree/analysis.ipynb?reset'));
    await page.waitForTimeout(6000);
    await page.locator('.jp-gpu-StatusItem button').click();
    await page.waitForTimeout(1000);
    await page.screenshot({ path: '/tmp/lab/1.png' });
    await server.request(2);
    await page.waitForTimeout(4000);
    await page.screenshot({ path: '/tmp/lab/2.png' });
    console.log(JSON.stringify(await server.view()));
  } finally { console.log(server.log()); await server.dispose(); }
});
