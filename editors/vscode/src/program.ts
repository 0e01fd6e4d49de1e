// Which program is the language server: the one of the settings, of the selected Python environment, or of the PATH.

import * as fs from "node:fs";
import * as path from "node:path";

export interface Wanted {
  /** The setting ddp-audit.path; empty where it is not set. */
  configured: string;
  /** The Python interpreter that is selected in the editor, if any. */
  interpreter?: string;
  /** The variable PATH. */
  searchPath: string;
  platform: NodeJS.Platform;
}

/** Return the program, or undefined where none is installed. Folders of the workspace are not looked at: they may be anybody's. */
export function findProgram(wanted: Wanted, exists: (file: string) => boolean = isFile): string | undefined {
  if (wanted.configured) {
    return wanted.configured;
  }
  const names = wanted.platform === "win32" ? ["ddp-audit.exe"] : ["ddp-audit"];
  const folders = wanted.searchPath.split(wanted.platform === "win32" ? ";" : ":").filter((folder) => path.isAbsolute(folder));
  if (wanted.interpreter && path.isAbsolute(wanted.interpreter)) {
    folders.unshift(path.dirname(wanted.interpreter));
  }
  for (const folder of folders) {
    for (const name of names) {
      const file = path.join(folder, name);
      if (exists(file)) {
        return file;
      }
    }
  }
  return undefined;
}

function isFile(file: string): boolean {
  try {
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}
