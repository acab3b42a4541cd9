import { defineConfig } from '@playwright/test';

/** A real browser, the machine's own. Servers are started by the tests themselves (tests/server.ts), on free ports. */
export default defineConfig({
  testDir: './tests',
  timeout: 60_000,
  expect: { timeout: 15_000 },
  workers: 1, // GPUs of one machine: what one test attaches another would miss
  forbidOnly: Boolean(process.env.CI),
  retries: process.env.CI ? 2 : 0, // a test that then passes is named as flaky at the end
  reporter: [['list']],
  use: {
    browserName: 'chromium',
    viewport: { width: 1280, height: 800 },
    trace: process.env.CI ? 'on-first-retry' : 'retain-on-failure', // a recording takes much of a processor
    screenshot: 'only-on-failure',
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        '--no-first-run'
      ]
    }
  }
});
