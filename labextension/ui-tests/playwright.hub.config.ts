import { defineConfig } from '@playwright/test';
import config from './playwright.config';

/** The page of GPU limits of a real hub, which `tests/hub_service/test_page_in_browser.py` starts; it runs these files. */
export default defineConfig({
  ...config,
  testDir: './hub',
  outputDir: process.env.HUB_RESULTS,
  retries: 0
});
