// Kubernetes quantities such as 250m and 64Mi, and times.

const SUFFIXES: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** Returns the value of a quantity; 0 if it is not one. */
export function quantity(text: string): number {
  const match = /^([+-]?[0-9.]+(?:e[+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?$/.exec(text);
  const value = match ? Number(match[1]) * (SUFFIXES[match[2] ?? ""] ?? NaN) : NaN;
  return Number.isFinite(value) ? value : 0;
}

/** Formats bytes with a binary unit. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${scaled >= 100 || unit === 0 ? Math.round(scaled) : scaled.toFixed(1)} ${units[unit]}`;
}

/** Formats CPU: cores, or thousandths below one core. */
export function cores(value: number): string {
  return value < 1 ? `${Math.round(value * 1000)}m` : value.toFixed(value < 10 ? 1 : 0);
}

/** Formats a duration as kubectl does: at most two units. */
export function duration(milliseconds: number): string {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86_400)];
  if (seconds < 120) return `${seconds}s`;
  if (minutes < 10) return seconds % 60 ? `${minutes}m${seconds % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  if (days < 8) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
  if (days < 730) return `${days}d`;
  return `${Math.floor(days / 365)}y`;
}

export function age(timestamp: string | undefined, now: number): string {
  const then = Date.parse(timestamp ?? "");
  return Number.isNaN(then) ? "" : duration(now - then);
}
