/**
 * Opens the page of limits several times in Chromium: node first_paint.mjs UI_TESTS ADDRESS COUNT.
 * Prints JSON: for each time the milliseconds until something is painted, and until the table of the page's code is shown.
 */
import { createRequire } from 'node:module';

const [, , uiTests, address, count] = process.argv;
const { chromium } = createRequire(`${uiTests}/`)('@playwright/test');
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM });
const found = [];
try {
  for (let i = 0; i < Number(count); i += 1) {
    const headers = { Authorization: 'token bench' }; // in place of a login
    const page = await (await browser.newContext({ extraHTTPHeaders: headers })).newPage();
    await page.goto(address);
    await page.locator('#gpu-limits:not([hidden]) tbody tr').first().waitFor();
    found.push(
      await page.evaluate(() => ({
        painted: performance.getEntriesByName('first-contentful-paint')[0].startTime,
        shown: performance.now()
      }))
    );
    await page.context().close();
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(found));
