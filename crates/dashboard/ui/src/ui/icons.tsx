// Icons as paths on a 16 by 16 grid. They are decoration: the text beside them has the meaning.

const PATHS = {
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.5 10.5L14 14",
  settings: "M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M12.6 3.4l-1.4 1.4M4.8 11.2l-1.4 1.4",
  overview: "M2 2h5v6H2zM9 2h5v4H9zM9 8h5v6H9zM2 10h5v4H2z",
  network: "M8 2.5v4M8 6.5L3.5 10M8 6.5l4.5 3.5M2 10h3v3.5H2zM11 10h3v3.5h-3zM6.5 1.5h3v2h-3z",
  create: "M8 3v10M3 8h10",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  more: "M3 8h.01M8 8h.01M13 8h.01",
  warning: "M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5h.01",
  check: "M3 8.5l3.5 3.5L13 4.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
